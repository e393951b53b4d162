import json

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics.retrieval import class_retrieval, view_retrieval, without_self


def double_loop(x, y, gallery=None, gallery_y=None, ks=(1, 5, 10)):
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
    centers = np.random.default_rng(7).normal(size=(classes, 5))
    y = draw.choice(classes, n, p=np.arange(1, classes + 1) / sum(range(1, classes + 1)))
    return centers[y] + noise * draw.normal(size=(n, 5)), y


def test_class_retrieval_is_the_double_loop(monkeypatch):
    x, y = clusters(90)
    y[:7] = -1
    y[7] = 33  # alone in its class: left out
    found = class_retrieval(x, y)
    assert flat(found) == pytest.approx(double_loop(x, y))
    assert found["protocol"]["queries"] == 82 and found["protocol"]["queries_without_another_image"] == 1
    assert 0.2 < found["map_at_r"] < found["r_precision"] < found["recall_at"]["1"] < found["recall_at"]["10"]
    json.dumps(found)
    monkeypatch.setattr("coulomb.metrics.nearest.STRIP", 90 * 4)
    assert flat(class_retrieval(x, y)) == flat(found)


def test_class_retrieval_from_a_gallery_is_the_double_loop():
    x, y = clusters(40)
    gallery, gallery_y = clusters(70, seed=1)
    gallery_y[:5] = -1
    found = class_retrieval(x, y, gallery, gallery_y, ks=(1, 3))
    assert flat(found) == pytest.approx(double_loop(x, y, gallery, gallery_y, ks=(1, 3)))
    assert found["protocol"]["searched"] == "65 gallery images"


def test_k_may_exceed_the_number_of_images():
    x, y = clusters(8, classes=2)
    assert flat(class_retrieval(x, y)) == pytest.approx(double_loop(x, y))


def test_perfect_features():
    y = torch.arange(30) % 3
    found = class_retrieval(torch.eye(3)[y] + 0.01, y)
    assert flat(found) == [1.0] * 5


def test_query_never_retrieves_itself():
    columns = torch.tensor([[4, 1, 2], [0, 1, 3], [5, 0, 1]])
    assert without_self(columns, torch.tensor([4, 1, 2])).tolist() == [[1, 2], [0, 3], [5, 0]]
    # A hundred copies of two images: each query's copies are found before itself, and still it finds only others.
    y = torch.arange(200) % 2
    assert class_retrieval(torch.eye(2)[y], y)["map_at_r"] == 1.0
    assert class_retrieval(torch.ones(200, 2), torch.arange(200) // 2)["recall_at"]["1"] < 0.05


def test_queries_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr("coulomb.metrics.retrieval.MOST", 50)
    x, y = clusters(90)
    found = class_retrieval(x, y, seed=3)
    assert found["protocol"]["queries"] + found["protocol"]["queries_without_another_image"] == 50
    assert found["protocol"]["queries_left_out"] == 40
    assert found == class_retrieval(x, y, seed=3) != class_retrieval(x, y, seed=4)


def test_class_retrieval_refuses_invalid_input():
    with pytest.raises(InputError, match="two images of a class"):
        class_retrieval(torch.rand(3, 2), torch.arange(3))
    with pytest.raises(InputError, match=r"ks=\(0,\)"):
        class_retrieval(torch.rand(3, 2), torch.zeros(3, dtype=torch.long), ks=(0,))
    with pytest.raises(InputError, match="no class has an image"):
        class_retrieval(torch.rand(3, 2), torch.full((3,), -1))


def test_view_retrieval_is_the_double_loop(monkeypatch):
    generator = np.random.default_rng(0)
    first = generator.normal(size=(60, 5))
    second = first + 0.8 * generator.normal(size=(60, 5))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)]
    expected = np.mean([np.argmax([a @ b for b in unit[1]]) == i for i, a in enumerate(unit[0])])
    backwards = np.mean([np.argmax([b @ a for a in unit[0]]) == i for i, b in enumerate(unit[1])])
    assert 0.1 < expected < 0.9 and expected != backwards
    assert view_retrieval(first, second) == pytest.approx(expected)
    assert view_retrieval(second, first) == pytest.approx(backwards)
    monkeypatch.setattr("coulomb.metrics.nearest.STRIP", 60 * 7)
    assert view_retrieval(first, second) == pytest.approx(expected)


def test_view_retrieval_of_perfect_and_collapsed_features():
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    assert view_retrieval(x, 3 * x) == 1.0
    assert view_retrieval(torch.ones(50, 8), torch.ones(50, 8)) == 1 / 50


@pytest.mark.parametrize("shape", [(1, 4), (50, 5), (49, 8)])
def test_view_retrieval_refuses_invalid_shapes(shape):
    with pytest.raises(InputError, match="same n ≥ 2"):
        view_retrieval(torch.rand(1 if shape[0] == 1 else 50, 4 if shape[0] == 1 else 8), torch.rand(*shape))
