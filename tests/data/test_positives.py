from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.data import p_no_positive
from coulomb.data.samplers import smallest_batch
from coulomb.errors import InputError


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 120))
def test_against_exact_counting(own, others, batch):
    total = own + others
    batch = min(batch, total)
    exact = comb(others, batch - 1) / comb(total - 1, batch - 1)
    assert p_no_positive(own, total, batch) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_against_drawing_batches():
    labels = np.array([0] * 3 + [1] * 10 + [2] * 37)
    draw = np.random.default_rng(0)
    alone, seen = np.zeros(3), np.zeros(3)
    for _ in range(4000):
        batch = draw.permutation(50)[:6]
        found = np.bincount(labels[batch], minlength=3)
        seen += found
        alone += found == 1
    for label, count in enumerate((3, 10, 37)):
        p = p_no_positive(count, 50, 6)
        assert alone[label] / seen[label] == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / seen[label]) + 1e-3)


def test_edges():
    assert p_no_positive(1, 10, 10) == 1  # alone in its class
    assert p_no_positive(5, 5, 1) == 1  # a batch of one
    assert p_no_positive(5, 5, 2) == 0
    assert 0 < p_no_positive(1000, 10**6, 256) < 1
    for bad in ((0, 5, 2), (6, 5, 2), (1, 5, 0), (1, 5, 6)):
        with pytest.raises(InputError):
            p_no_positive(*bad)


@given(st.integers(1, 30), st.integers(0, 60), st.floats(0.01, 0.99))
def test_the_smallest_batch_that_will_do(own, others, most):
    total = own + others
    batch = smallest_batch(own, total, most)
    if own == 1:
        assert batch is None  # nobody else is of its class, whatever the batch
        return
    assert p_no_positive(own, total, batch) <= most
    assert batch == 1 or p_no_positive(own, total, batch - 1) > most
