from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.data import p_no_positive
from coulomb.data.samplers import SAMPLERS, class_probabilities, epoch_order, most_frequent_class, smallest_batch
from coulomb.errors import InputError

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 0)


def labels_of(sizes, unknown=0):
    return np.concatenate([np.full(size, label) for label, size in enumerate(sizes)] + [np.full(unknown, -1)])


def times_shown(order, labels):
    return np.bincount(order, minlength=len(labels))


@given(SIZES, st.integers(0, 9), st.sampled_from(list(SAMPLERS)), st.integers(0, 9))
def test_epoch_quotas_are_exact_to_one_image(sizes, unknown, sampler, seed):
    labels = labels_of(sizes, unknown)
    order = epoch_order(np.arange(len(labels)), labels, sampler, np.random.default_rng(seed))
    assert len(order) == len(labels)  # an epoch has as many images as there are
    shown = times_shown(order, labels)
    assert (shown[labels < 0] == 1).all()
    wanted = class_probabilities(np.array(sizes), sampler) * sum(sizes)
    for label, size in enumerate(sizes):
        own = shown[labels == label]
        assert abs(own.sum() - wanted[label]) < 1 + 1e-9
        assert size == 0 or own.max() - own.min() <= 1  # images of a class are shown equally often


@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_frequencies_over_epochs(sampler):
    sizes = [60, 17, 4, 1]
    labels = labels_of(sizes, 3)
    total = sum(
        times_shown(epoch_order(np.arange(85), labels, sampler, np.random.default_rng(e)), labels) for e in range(600)
    )
    weights = np.array(sizes, dtype=float) ** SAMPLERS[sampler]
    expected = 82 * weights / weights.sum()
    for label, size in enumerate(sizes):
        assert total[labels == label].sum() / 600 == pytest.approx(expected[label], abs=0.08)  # σ ≤ .5/√600 = .02
        assert total[labels == label] / 600 == pytest.approx(expected[label] / size, abs=0.1)


def test_uniform_is_a_plain_permutation_with_or_without_labels():
    indices = np.array([5, 7, 9, 11])
    order = epoch_order(indices, None, "uniform", np.random.default_rng(3))
    assert order.tolist() == np.random.default_rng(3).permutation(indices).tolist()


def test_order_depends_only_on_the_generator():
    labels = labels_of([9, 3])
    first, again, other = (
        epoch_order(np.arange(12), labels, "class_balanced", np.random.default_rng(seed)).tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_most_frequent_class_of_a_sampler():
    assert most_frequent_class(labels_of([90, 10]), "class_balanced") == (1, 5.0)
    assert most_frequent_class(labels_of([90, 10]), "uniform")[1] == pytest.approx(1)


@pytest.mark.parametrize("labels", [None, np.full(4, -1)])
def test_a_sampler_needs_labels(labels):
    with pytest.raises(InputError, match="sampler='square_root'.*needs labels"):
        epoch_order(np.arange(4), labels, "square_root", np.random.default_rng(0))


def test_an_unknown_sampler_is_refused():
    with pytest.raises(InputError, match="sampler='fair'"):
        class_probabilities(np.ones(3), "fair")


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
        result = np.bincount(labels[batch], minlength=3)
        seen += result
        alone += result == 1
    for label, count in enumerate((3, 10, 37)):
        p = p_no_positive(count, 50, 6)
        assert alone[label] / seen[label] == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / seen[label]) + 1e-3)


def test_p_no_positive_edge_cases():
    assert p_no_positive(1, 10, 10) == 1  # alone in its class
    assert p_no_positive(5, 5, 1) == 1  # a batch of one
    assert p_no_positive(5, 5, 2) == 0
    assert 0 < p_no_positive(1000, 10**6, 256) < 1
    for bad in ((0, 5, 2), (6, 5, 2), (1, 5, 0), (1, 5, 6)):
        with pytest.raises(InputError):
            p_no_positive(*bad)


@given(st.integers(1, 30), st.integers(0, 60), st.floats(0.01, 0.99))
def test_smallest_batch(own, others, most):
    total = own + others
    batch = smallest_batch(own, total, most)
    if own == 1:
        assert batch is None  # no other image has its class
        return
    assert p_no_positive(own, total, batch) <= most
    assert batch == 1 or p_no_positive(own, total, batch - 1) > most
