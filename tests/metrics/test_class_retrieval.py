import importlib
import json

import numpy as np
import pytest
import torch

from coulomb.errors import InputError
from coulomb.metrics.retrieval import class_retrieval, without_own

retrieval = importlib.import_module("coulomb.metrics.retrieval")


def by_hand(x, y, gallery=None, gallery_y=None, ks=(1, 5, 10)):
    """The definitions of pytorch-metric-learning's AccuracyCalculator, one query at a time."""
    own = gallery is None
    gallery, gallery_y = (x, y) if own else (gallery, gallery_y)
    unit = [a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, gallery)]
    rows = []
    for i in range(len(x)):
        if y[i] < 0:
            continue
        others = [j for j in range(len(gallery)) if gallery_y[j] >= 0 and not (own and j == i)]
        order = sorted(others, key=lambda j: -float(unit[0][i] @ unit[1][j]))
        same = [gallery_y[j] == y[i] for j in order]
        R = sum(same)
        if R == 0:
            continue
        row = [float(any(same[:k])) for k in ks]
        row.append(sum(sum(same[: n + 1]) / (n + 1) for n in range(R) if same[n]) / R)
        rows.append([*row, sum(same[:R]) / R])
    return np.mean(rows, axis=0)


def flat(found):
    return [*found["recall_at"].values(), found["map_at_r"], found["r_precision"]]


def clusters(n, seed=0, classes=6, noise=1.2):
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(classes, 5))
    y = draw.choice(classes, n, p=np.arange(1, classes + 1) / sum(range(1, classes + 1)))
    return centres[y] + noise * draw.normal(size=(n, 5)), y


def test_is_the_double_loop_over_all_other_queries(monkeypatch):
    x, y = clusters(90)
    y[:7] = -1
    y[7] = 33  # alone in its class: left out
    found = class_retrieval(x, y)
    assert flat(found) == pytest.approx(by_hand(x, y))
    assert found["protocol"]["queries"] == 82 and found["protocol"]["queries_without_another_image"] == 1
    assert 0.2 < found["map_at_r"] < found["r_precision"] < found["recall_at"]["1"] < found["recall_at"]["10"]
    json.dumps(found)
    monkeypatch.setattr("coulomb.metrics.cosines.BLOCK", 90 * 4)
    assert flat(class_retrieval(x, y)) == flat(found)


def test_is_the_double_loop_over_a_gallery():
    x, y = clusters(40)
    gallery, gallery_y = clusters(70, seed=1)
    gallery_y[:5] = -1
    found = class_retrieval(x, y, gallery, gallery_y, ks=(1, 3))
    assert flat(found) == pytest.approx(by_hand(x, y, gallery, gallery_y, ks=(1, 3)))
    assert found["protocol"]["searched"] == "65 gallery images"


def test_k_may_exceed_what_there_is():
    x, y = clusters(8, classes=2)
    assert flat(class_retrieval(x, y)) == pytest.approx(by_hand(x, y))


def test_perfect_features():
    y = torch.arange(30) % 3
    found = class_retrieval(torch.eye(3)[y] + 0.01, y)
    assert flat(found) == [1.0] * 5


def test_the_query_itself_is_never_found():
    columns = torch.tensor([[4, 1, 2], [0, 1, 3], [5, 0, 1]])
    assert without_own(columns, torch.tensor([4, 1, 2])).tolist() == [[1, 2], [0, 3], [5, 0]]
    # A hundred copies of two images: each query's copies are found before itself, and still it finds only others.
    y = torch.arange(200) % 2
    assert class_retrieval(torch.eye(2)[y], y)["map_at_r"] == 1.0
    assert class_retrieval(torch.ones(200, 2), torch.arange(200) // 2)["recall_at"]["1"] < 0.05


def test_more_queries_than_the_cap(monkeypatch):
    monkeypatch.setattr(retrieval, "MOST", 50)
    x, y = clusters(90)
    found = class_retrieval(x, y, seed=3)
    assert found["protocol"]["queries"] + found["protocol"]["queries_without_another_image"] == 50
    assert found["protocol"]["queries_left_out"] == 40
    assert found == class_retrieval(x, y, seed=3) != class_retrieval(x, y, seed=4)


def test_bad_input():
    with pytest.raises(InputError, match="two images of a class"):
        class_retrieval(torch.rand(3, 2), torch.arange(3))
    with pytest.raises(InputError, match=r"ks=\(0,\)"):
        class_retrieval(torch.rand(3, 2), torch.zeros(3, dtype=torch.long), ks=(0,))
    with pytest.raises(InputError, match="no class has an image"):
        class_retrieval(torch.rand(3, 2), torch.full((3,), -1))
