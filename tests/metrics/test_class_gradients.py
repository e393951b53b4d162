import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coulomb.errors import InputError
from coulomb.metrics.gradients import class_gradient_norms, frequency_exponent


@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_sums_are_the_plain_loop(n, dim, classes, seed):
    draw = torch.Generator().manual_seed(seed)
    gradients = torch.randn(max(n, 1), dim, generator=draw)
    labels = torch.randint(-1, classes, (max(n, 1),), generator=draw)
    sums, counts = class_gradient_norms(gradients, labels, classes)
    for label in range(classes):
        own = [
            math.sqrt(sum(float(g) ** 2 for g in row)) for row, y in zip(gradients, labels, strict=True) if y == label
        ]
        assert counts[label] == len(own)
        assert float(sums[label]) == pytest.approx(sum(own), abs=1e-5)


def test_what_does_not_fit_is_refused():
    rows = torch.ones(3, 2)
    for labels in (
        torch.tensor([0, 1]),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([0, 1, 2]),
        torch.tensor([0, -2, 1]),
    ):
        with pytest.raises(InputError, match="labels"):
            class_gradient_norms(rows, labels, 2)
    with pytest.raises(InputError, match="gradients has 3 of 3 rows with NaN"):
        class_gradient_norms(rows * math.nan, torch.tensor([0, 1, 1]), 2)


@given(st.floats(-1.5, 1.5), st.floats(0.1, 10))
def test_the_exponent_of_a_power_law_is_found(exponent, factor):
    counts = torch.tensor([1000, 300, 50, 4, 0])
    norms = factor * counts.double().clamp_min(1) ** exponent
    assert frequency_exponent(norms, counts) == pytest.approx(exponent, abs=1e-9)


def test_no_exponent_without_two_frequencies():
    assert frequency_exponent(torch.ones(3), torch.tensor([5, 5, 5])) is None
    assert frequency_exponent(torch.tensor([1.0, 0.0]), torch.tensor([5, 50])) is None
    assert frequency_exponent(torch.tensor([1.0, math.nan]), torch.tensor([5, 50])) is None
