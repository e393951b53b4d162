import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.data import split_sentence, stratified_split
from coulomb.errors import InputError

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@given(SIZES, st.integers(0, 10), st.floats(0.01, 0.99), st.integers(0, 5))
def test_shares_are_kept(sizes, unknown, fraction, seed):
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
        assert taken <= size - 1  # training keeps at least one
        assert abs(taken - min(size * fraction, size - 1)) <= 1
    eligible = sum(size for size in sizes if size > 1)
    room = sum(size - 1 for size in sizes)
    assert len(test) >= 1
    assert len(test) <= max(1, int(eligible * fraction + 0.5), len(sizes))
    if all(size * (1 - fraction) >= 1 for size in sizes):
        assert len(test) == max(1, min(room, int(np.floor(eligible * fraction + 0.5))))


def test_seed_decides():
    labels = np.arange(100) % 5
    first, again, other = (stratified_split(labels, 0.2, seed)[1] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.bincount(labels[first]).tolist() == [4] * 5


def test_without_labels_it_is_a_plain_draw():
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


def test_sentence_tells_what_stayed():
    labels = np.array([0] * 10 + [1] * 10 + [2] + [-1] * 4)
    train, test = stratified_split(labels, 0.2, 3)
    sentence = split_sentence(labels, train, test, 0.2, 3)
    assert "4 of 25 images held out (20%, seed 3, stratified by class)" in sentence
    assert "1 of 3 classes have no test image (1 have one image" in sentence
    assert "4 images without a label stay in training" in sentence
    assert "no labels" in split_sentence(None, *stratified_split(None, 0.5, 0, count=4), 0.5, 0)
