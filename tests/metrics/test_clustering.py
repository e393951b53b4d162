import itertools
import json
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from coulomb.ground.errors import InputError
from coulomb.metrics.clustering import clustering


def blobs(n=240, seed=0, noise=0.5):
    draw = np.random.default_rng(seed)
    y = np.arange(n) % 4
    centers = np.array([[3, 0, 0], [0, 3, 0], [0, 0, 3], [-2, -2, -2]], dtype=float)
    return (centers[y] + noise * draw.normal(size=(n, 3))).astype(np.float32), y


def by_hand(y, found):
    """NMI, ARI and accuracy from the table of counts and from all assignments."""
    table = np.array([[np.sum((y == a) & (found == b)) for b in np.unique(found)] for a in np.unique(y)], dtype=float)
    n = table.sum()
    p, rows, columns = table / n, table.sum(1) / n, table.sum(0) / n
    information = sum(p[i, j] * np.log(p[i, j] / rows[i] / columns[j]) for i, j in np.ndindex(*p.shape) if p[i, j] > 0)
    nmi = 2 * information / -(sum(rows * np.log(rows)) + sum(columns * np.log(columns)))
    pairs = lambda count: (count * (count - 1) / 2).sum()  # noqa: E731
    both, same_y, same_found, total = pairs(table), pairs(table.sum(1)), pairs(table.sum(0)), n * (n - 1) / 2
    chance = same_y * same_found / total
    ari = (both - chance) / ((same_y + same_found) / 2 - chance)
    best = max(sum(table[i, j] for i, j in enumerate(order)) for order in itertools.permutations(range(len(table))))
    return {"nmi": nmi, "ari": ari, "accuracy": best / n}


def test_clustering_matches_the_definitions(monkeypatch):
    x, y = blobs(noise=2.5)
    seen = []
    import sklearn.cluster

    original = sklearn.cluster.KMeans.fit_predict
    monkeypatch.setattr(
        sklearn.cluster.KMeans, "fit_predict", lambda self, x: seen.append((x, original(self, x))) or seen[0][1]
    )
    found = clustering(x, y * 10)
    assert {key: found[key] for key in ("nmi", "ari", "accuracy")} == pytest.approx(by_hand(y, seen[0][1]))
    assert 0.1 < found["ari"] < found["nmi"] + 0.2 < found["accuracy"] + 0.2 < 1.1
    np.testing.assert_allclose(np.linalg.norm(seen[0][0], axis=1), 1, atol=1e-6)
    json.dumps(found)


def test_separate_classes_are_found_at_any_vector_length():
    x, y = blobs()
    found = clustering(x, y)
    assert (found["nmi"], found["ari"], found["accuracy"]) == (1.0, 1.0, 1.0)
    assert clustering(x * np.linspace(0.1, 100, len(x))[:, None].astype(np.float32), y)["nmi"] == 1.0


def test_raw_digits_are_where_others_found_them():
    x, y = load_digits(return_X_y=True)
    found = clustering(x[:900], y[:900])
    assert 0.6 < found["nmi"] < 0.85 and 0.55 < found["accuracy"] < 0.9


def test_seed_limit_and_unlabeled_rows(monkeypatch):
    x, y = blobs(noise=3)
    assert clustering(x, y, seed=1) == clustering(x, y, seed=1)
    y[:10] = -1
    monkeypatch.setattr(sys.modules[clustering.__module__], "MOST", 200)
    protocol = clustering(x, y)["protocol"]
    assert (protocol["images"], protocol["images_left_out"], protocol["clusters"]) == (200, 30, 4)


def test_collapsed_features_are_counted_without_a_warning():
    found = clustering(torch.ones(40, 8), torch.arange(40) % 4)
    assert found["nmi"] == pytest.approx(0, abs=1e-9) and found["accuracy"] == 0.25
    assert found["protocol"]["clusters_found"] == 1


def test_one_class():
    with pytest.raises(InputError, match="one class"):
        clustering(torch.rand(5, 2), torch.zeros(5, dtype=torch.long))
