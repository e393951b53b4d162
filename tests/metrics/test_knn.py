import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from coulomb.ground.errors import InputError
from coulomb.metrics.knn import knn_accuracy


def clusters(n, seed, dim=6, classes=5, noise=1.0):
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, dim))
    y = generator.integers(0, classes, n)
    return (centers[y] + noise * generator.normal(size=(n, dim))).astype(np.float32), y


def by_hand(train_x, train_y, test_x, test_y, k, sigma):
    right = 0
    for x, y in zip(test_x.astype(np.float64), test_y, strict=True):
        cosines = [float(x @ key / np.linalg.norm(x) / np.linalg.norm(key)) for key in train_x.astype(np.float64)]
        scores = {}
        for column in np.argsort(cosines)[::-1][:k]:
            scores[train_y[column]] = scores.get(train_y[column], 0.0) + np.exp(cosines[column] / sigma)
        right += max(sorted(scores), key=scores.get) == y
    return right / len(test_y)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.sampled_from([0.07, 0.1, 1.0]), st.integers(0, 10**6))
def test_knn_is_the_double_loop(k, sigma, seed):
    train, test = clusters(40, seed), clusters(17, seed + 1)
    assert knn_accuracy(*train, *test, k=k, sigma=sigma) == by_hand(*train, *test, k, sigma)


def test_knn_agrees_with_scikit_learn():
    train, test = clusters(300, 0), clusters(200, 1)
    model = KNeighborsClassifier(15, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.1))
    expected = model.fit(*train).score(*test)
    assert 0.3 < expected < 0.95
    assert knn_accuracy(*train, *test, k=15, sigma=0.1) == expected


def test_weights_and_k_matter():
    train, test = clusters(300, 0, noise=2.0), clusters(200, 1, noise=2.0)
    assert len({knn_accuracy(*train, *test, k=k, sigma=s) for k in (1, 15, 300) for s in (0.02, 10.0)}) >= 4


def test_block_size_does_not_matter(monkeypatch):
    train, test = clusters(300, 0), clusters(101, 1)
    whole = knn_accuracy(*train, *test, k=15)
    monkeypatch.setattr("coulomb.metrics.nearest.STRIP", 300 * 7)
    assert knn_accuracy(*train, *test, k=15) == whole
    monkeypatch.setattr("coulomb.metrics.nearest.STRIP", 1)
    assert knn_accuracy(*train, *test, k=15) == whole


def test_small_sigma_is_the_nearest_neighbor():
    train, test = clusters(300, 0), clusters(200, 1)
    assert knn_accuracy(*train, *test, k=300, sigma=1e-6) == knn_accuracy(*train, *test, k=1)


def test_knn_ignores_scale_and_accepts_half_precision():
    train, test = clusters(300, 0), clusters(200, 1)
    plain = knn_accuracy(*train, *test, k=15)
    assert knn_accuracy(train[0] * 1024, train[1], test[0] / 1024, test[1], k=15) == plain
    half = torch.from_numpy(train[0]).bfloat16()
    assert abs(knn_accuracy(half, train[1], test[0], test[1], k=15) - plain) < 0.05


def test_unlabeled_rows_are_left_out():
    train, test = clusters(100, 0), clusters(50, 1)
    plain = knn_accuracy(*train, *test, k=9)
    more_train = np.concatenate([train[0], test[0]]), np.concatenate([train[1], np.full(50, -1)])
    more_test = np.concatenate([test[0], train[0]]), np.concatenate([test[1], np.full(100, -1)])
    assert knn_accuracy(*more_train, *more_test, k=9) == plain


def test_labels_may_have_gaps():
    train, test = clusters(100, 0), clusters(50, 1)
    gaps = np.array([7, 100, 3, 10**9, 12])
    assert knn_accuracy(train[0], gaps[train[1]], test[0], gaps[test[1]], k=9) == knn_accuracy(*train, *test, k=9)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"k": 11}, "k=11 must be from 1 to the 10 labeled"),
        ({"k": 0}, "k=0"),
        ({"sigma": 0.0}, "sigma=0.0"),
        ({"train_y": torch.full((10,), -1)}, "no label other than −1"),
        ({"test_y": torch.zeros(9, dtype=torch.long)}, "test_y must be 10 integers"),
        ({"train_y": torch.zeros(10)}, "train_y must be 10 integers"),
        ({"train_x": torch.rand(10, 3)}, "3 features and test_x 4"),
        ({"test_x": torch.rand(10)}, r"test_x must be floating-point vectors \[n, D\]"),
        ({"test_x": torch.full((10, 4), torch.nan)}, "test_x has 10 of 10 rows with NaN"),
    ],
)
def test_bad_input(change, message):
    given_ = {"train_x": torch.rand(10, 4), "train_y": torch.arange(10), "test_x": torch.rand(10, 4)}
    with pytest.raises(InputError, match=message):
        knn_accuracy(**({**given_, "test_y": torch.arange(10), "k": 3} | change))
