"""Classification and retrieval by BM25, compared with loops over its scores."""

import numpy as np
import pytest

from coulomb.metrics.bm25 import bm25_scores
from coulomb.metrics.bm25_neighbors import bm25_classes, bm25_retrieval, bm25_similarities

WORDS = [["rose", "tulip", "petal", "leaf"], ["cat", "dog", "paw", "tail"], ["rain", "snow", "wind", "cloud"]]


def texts(count, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.integers(3, size=count)
    common = ["the", "a", "some", "red"]
    made = [" ".join([*draw.choice(WORDS[label], 2), *draw.choice(common, 3)]) for label in labels]
    return made, labels


def test_classes_are_those_of_the_highest_scores():
    train, train_y = texts(40)
    test, test_y = texts(700, 1)  # more than one block
    found = bm25_classes(train, train_y, test, 5)
    scores = bm25_scores(test, train)(slice(0, len(test)))
    for row in range(0, len(test), 37):
        votes = np.zeros(3)
        for best in sorted(range(len(train)), key=lambda each: (-scores[row, each], each))[:5]:
            votes[train_y[best]] += scores[row, best]
        assert found[row] == votes.argmax()
    assert (found == test_y).mean() > 0.9
    assert bm25_classes(train, train_y, ["zebra"], 5).tolist() == [0]


def test_retrieval_counts_texts_of_the_class():
    made, labels = texts(30)
    labels[0] = 9  # alone in its class
    found = bm25_retrieval(made, labels, ks=(1, 3))
    scores, recall, precision = bm25_scores(made, made)(slice(0, 30)), [], []
    for row in range(1, 30):
        order = [each for each in np.argsort(-scores[row], kind="stable").tolist() if each != row]
        right = labels[order] == labels[row]
        recall.append([right[:k].any() for k in (1, 3)])
        precision.append(right[: right.sum()].mean())
    assert list(found["recall_at"].values()) == pytest.approx(np.mean(recall, axis=0))
    assert found["r_precision"] == pytest.approx(np.mean(precision))
    with pytest.raises(ValueError, match="no class has two texts"):
        bm25_retrieval(made[:3], np.arange(3))


def test_similarities_are_one_for_equal_texts_and_zero_without_common_words():
    first = ["a red rose", "cats sleep", "wind and rain", "", "snow on snow"]
    second = ["a red rose", "dogs bark", "rain", "", "snow"]
    found = bm25_similarities(first, second)
    assert found[0] == pytest.approx(1) and found[1] == 0 and 0 < found[2] < 1 and found[3] == 0
    both = [*first, *second]
    scores = bm25_scores(both, both)(slice(0, 10))
    for row in (0, 2, 4):
        expected = (scores[row, row + 5] + scores[row + 5, row]) / (scores[row, row] + scores[row + 5, row + 5])
        assert found[row] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(bm25_similarities(second, first), found, atol=1e-12)
    many = bm25_similarities(first * 100, second * 100)
    np.testing.assert_allclose(many[::5], many[0], atol=1e-12)
