from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.tables import p_no_positive, split_sentence, stratified_split
from coulomb.tables.split import (
    SAMPLERS,
    LongTail,
    class_probabilities,
    epoch_order,
    imbalance,
    long_tail_subset,
    most_frequent_class,
    smallest_batch,
)

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@given(SIZES, st.integers(0, 10), st.floats(0.01, 0.99), st.integers(0, 5))
def test_split_keeps_class_proportions(sizes, unknown, fraction, seed):
    labels = np.concatenate([np.full(size, label) for label, size in enumerate(sizes)] + [np.full(unknown, -1)])
    labels = np.random.default_rng(seed).permutation(labels)
    if max(sizes) == 1:
        with pytest.raises(InputError, match="too few to hold out"):
            stratified_split(labels, fraction, seed)
        return
    train, test = stratified_split(labels, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()
    assert train.dtype == test.dtype == np.int64
    assert (labels[test] >= 0).all()
    for label, size in enumerate(sizes):
        taken = (labels[test] == label).sum()
        assert taken <= size - 1  # at least one stays in training
        assert abs(taken - min(size * fraction, size - 1)) <= 1
    eligible = sum(size for size in sizes if size > 1)
    room = sum(size - 1 for size in sizes)
    assert len(test) >= 1
    assert len(test) <= max(1, int(eligible * fraction + 0.5), len(sizes))
    if all(size * (1 - fraction) >= 1 for size in sizes):
        assert len(test) == max(1, min(room, int(np.floor(eligible * fraction + 0.5))))


def test_split_depends_on_the_seed():
    labels = np.arange(100) % 5
    first, again, other = (stratified_split(labels, 0.2, seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.bincount(labels[first]).tolist() == [4] * 5


def test_split_without_labels_is_random():
    train, test = stratified_split(None, 0.25, 0, count=40)
    assert (len(train), len(test)) == (30, 10)
    assert test.tolist() != list(range(10))
    with pytest.raises(InputError, match="count="):
        stratified_split(None, 0.25, 0)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2, float("nan")])
def test_fraction_is_checked(fraction):
    with pytest.raises(InputError, match="test_fraction="):
        stratified_split(None, fraction, 0, count=10)


@pytest.mark.parametrize("labels", [[0], [0, 1, 2], [-1, -1], []])
def test_too_few(labels):
    with pytest.raises(InputError, match="too few"):
        stratified_split(np.array(labels, dtype=np.int64), 0.5, 0)


def test_split_sentence():
    labels = np.array([0] * 10 + [1] * 10 + [2] + [-1] * 4)
    train, test = stratified_split(labels, 0.2, 3)
    sentence = split_sentence(labels, train, test, 0.2, 3)
    assert "4 of 25 images held out (20%, seed 3, stratified by class)" in sentence
    assert "1 of 3 classes has no test image (1 has one image" in sentence
    assert "4 images without a label stay in training" in sentence
    assert "no labels" in split_sentence(None, *stratified_split(None, 0.5, 0, count=4), 0.5, 0)


CLASS_SIZES = st.lists(st.integers(1, 60), min_size=2, max_size=12)
PROFILES = st.sampled_from(["exponential", "step"])


def test_cifar10_at_imbalance_100_has_the_published_counts():
    published = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert LongTail("exponential", 100).counts(np.full(10, 5000)).tolist() == published


def test_cifar100_at_imbalance_100_has_the_published_total():
    counts = LongTail("exponential", 100).counts(np.full(100, 500))
    assert (counts[0], counts[-1], counts.sum()) == (500, 5, 10847)


def test_step_thins_the_second_half():
    assert LongTail("step", 10).counts(np.full(5, 100)).tolist() == [100, 100, 100, 10, 10]


@given(CLASS_SIZES, PROFILES, st.floats(1, 200))
def test_counts_follow_the_profile(sizes, profile, factor):
    available = np.array(sizes)
    tail = LongTail(profile, factor)
    kept, shares = tail.counts(available), tail.shares(len(available))
    assert (kept >= 1).all() and (kept <= available).all()
    most = (available / shares).min()
    assert np.allclose(kept, np.maximum(1, np.floor(most * shares + 1e-6)), atol=1 if most > 1e5 else 0)
    assert (np.diff(kept) <= 0).all()  # the first class is the most frequent for any counts


@given(CLASS_SIZES, st.integers(0, 5), PROFILES, st.floats(1, 50), st.integers(0, 3))
def test_subset_has_the_counts_and_keeps_unlabeled_images(sizes, unknown, profile, factor, seed):
    labels = np.concatenate([np.full(size, label) for label, size in enumerate(sizes)] + [np.full(unknown, -1)])
    labels = np.random.default_rng(seed).permutation(labels)
    indices = np.arange(len(labels))
    tail = LongTail(profile, factor)
    kept = long_tail_subset(labels, indices, tail, seed)
    assert np.array_equal(kept, np.unique(kept)) and np.isin(kept, indices).all()
    assert np.array_equal(np.bincount(labels[kept][labels[kept] >= 0]), tail.counts(np.array(sizes)))
    assert (labels[kept] < 0).sum() == unknown
    other = long_tail_subset(labels, indices, LongTail(profile, factor * 2), seed)
    for label in range(len(sizes)):
        fewer, more = sorted((set(part[labels[part] == label]) for part in (kept, other)), key=len)
        assert fewer <= more


def test_seed_selects_the_images():
    labels = np.repeat([0, 1], 50)
    first, again, other = (
        long_tail_subset(labels, np.arange(100), LongTail("step", 10), seed).tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_only_the_given_indices_are_thinned():
    labels = np.repeat([0, 1], 50)
    kept = long_tail_subset(labels, np.arange(0, 100, 2), LongTail("exponential", 5), 0)
    assert (kept % 2 == 0).all() and np.bincount(labels[kept]).tolist() == [25, 5]


def test_own_profile_keeps_everything_and_needs_no_labels():
    assert long_tail_subset(None, np.arange(4), LongTail.parse("own"), 0).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "text", ["exponential", "exponential:", "exponential:x", "step:0.5", "step:inf", "pareto:3", ""]
)
def test_invalid_profiles_are_refused(text):
    with pytest.raises(InputError, match="long_tail="):
        LongTail.parse(text)


@pytest.mark.parametrize("labels", [None, np.full(6, -1), np.zeros(6, dtype=np.int64)])
def test_a_tail_needs_two_classes(labels):
    with pytest.raises(InputError, match="at least 2 classes"):
        long_tail_subset(labels, np.arange(6), LongTail("step", 2), 0)


def test_imbalance_is_most_over_fewest():
    assert imbalance(np.array([100, 0, 5])) == 20
    assert imbalance(np.zeros(3)) == 1


SIZES_WITH_EMPTY = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 0)


def labels_of(sizes, unknown=0):
    return np.concatenate([np.full(size, label) for label, size in enumerate(sizes)] + [np.full(unknown, -1)])


def times_shown(order, labels):
    return np.bincount(order, minlength=len(labels))


@given(SIZES_WITH_EMPTY, st.integers(0, 9), st.sampled_from(list(SAMPLERS)), st.integers(0, 9))
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
