import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from coulomb.ground.errors import InputError
from coulomb.metrics.clustering import clustering
from coulomb.metrics.evaluate import evaluate_features
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.linear import few_shot, linear_probe
from coulomb.metrics.retrieval import class_retrieval


def digits():
    x, y = load_digits(return_X_y=True)
    return [x[:500] / 16, y[:500], x[500:800] / 16, y[500:800]]


def test_all_metrics_with_their_protocol():
    train_x, train_y, test_x, test_y = digits()
    train_y[:10] = -1
    test_y[:7] = -1
    found = evaluate_features(train_x, train_y, test_x, test_y, k=5, sigma=0.07, seed=2, shots=(1, 3), draws=2)
    figures = {"knn", "linear", "few_shot", "retrieval", "clustering", "by_frequency", "per_class"}
    assert set(found) == figures | {"protocol"}
    assert figures - {"per_class"} < set(found["protocol"]) | set(found["protocol"]["by_frequency"])
    assert found["knn"] == knn_accuracy(train_x, train_y, test_x, test_y, k=5, sigma=0.07)
    assert found["linear"] == linear_probe(train_x, train_y, test_x, test_y, seed=2)["accuracy"]
    assert found["retrieval"]["map_at_r"] == class_retrieval(test_x, test_y, seed=2)["map_at_r"]
    assert found["clustering"]["nmi"] == clustering(test_x, test_y, seed=2)["nmi"]
    assert found["few_shot"] == few_shot(train_x, train_y, test_x, test_y, (1, 3), 2, 2)["shots"]
    assert set(found["few_shot"]) == {"1", "3"}
    protocol = found["protocol"]
    assert (protocol["train"], protocol["test"]) == (490, 293)
    assert (protocol["train_unlabeled"], protocol["test_unlabeled"]) == (10, 7)
    assert protocol["knn"]["k"] == protocol["knn"]["k_asked"] == 5
    assert protocol["knn"]["sigma"] == 0.07
    assert (protocol["classes"], protocol["features"], protocol["seed"]) == (10, 64, 2)
    assert protocol["test_of_classes_not_in_train"] == 0
    assert json.loads(json.dumps(found)) == found


def test_correct_holds_the_correctly_classified_images():
    train_x, train_y, test_x, test_y = digits()
    test_y[:7] = -1
    correct = {}
    found = evaluate_features(train_x, train_y, test_x, test_y, k=5, shots=(1, 3), draws=4, correct=correct)
    assert {name: each.shape for name, each in correct.items()} == {
        "knn": (293,), "linear": (293,), "few_shot_1": (4, 293), "few_shot_3": (4, 293)}  # fmt: skip
    assert correct["knn"].mean() == found["knn"] and correct["linear"].mean() == found["linear"]
    assert correct["few_shot_3"].mean() == pytest.approx(found["few_shot"]["3"]["mean"])
    alone = {}
    evaluate_features(train_x, np.zeros_like(train_y), test_x, np.zeros_like(test_y), k=5, correct=alone)
    assert alone == {}, "one class only: every guess is right, and no baseline can be beaten"


def test_per_class_rows_and_groups():
    train_x, train_y, test_x, test_y = digits()
    few = np.flatnonzero(train_y == 4)[:30]
    train_y[few] = -1
    names = [f"digit {i}" for i in range(10)]
    found = evaluate_features(
        train_x, train_y, test_x, test_y, k=5, draws=1, shots=(1,), many_above=48, few_below=25, class_names=names
    )
    rows, groups = found["per_class"], found["by_frequency"]
    assert [row["class"] for row in rows] == names
    assert [row["train"] for row in rows] == np.bincount(train_y[train_y >= 0]).tolist()
    assert sum(row["knn"] * row["test"] for row in rows) / len(test_y) == pytest.approx(found["knn"])
    assert sum(row["linear"] * row["test"] for row in rows) / len(test_y) == pytest.approx(found["linear"])
    assert groups["few"]["classes"] == 1 and groups["few"]["knn"] == rows[4]["knn"]
    assert groups["many"]["classes"] + groups["medium"]["classes"] == 9
    assert "more than 48" in found["protocol"]["by_frequency"]["many"]


def test_k_above_the_training_set_is_lowered():
    train_x, train_y, test_x, test_y = digits()
    train_y[60:] = -1
    found = evaluate_features(train_x, train_y, test_x, test_y, k=200, draws=1, shots=(1,))
    assert (found["protocol"]["knn"]["k"], found["protocol"]["knn"]["k_asked"]) == (60, 200)
    assert found["knn"] == knn_accuracy(train_x, train_y, test_x, test_y, k=60)


def test_classes_missing_in_training_are_counted():
    train_x, train_y, test_x, test_y = digits()
    train_y[train_y == 3] = -1
    found = evaluate_features(train_x, train_y, test_x, test_y, k=5, draws=1, shots=(1,))
    assert found["protocol"]["test_of_classes_not_in_train"] == (test_y == 3).sum()


def test_one_class():
    x = torch.rand(20, 4)
    y = torch.full((20,), 2)
    found = evaluate_features(x, y, x, y, k=3)
    assert found["knn"] == 1.0 and found["linear"] is None and found["few_shot"] is None
    assert "one class" in found["protocol"]["linear"]
    assert found["clustering"] is None and "one class" in found["protocol"]["clustering"]
    assert found["per_class"] == [
        {"label": 2, "class": "2", "train": 20, "test": 20, "knn": 1.0, "taken_for": {"2": 20}, "frequency": "medium"}
    ]


def test_no_labels():
    x = torch.rand(20, 4)
    with pytest.raises(InputError, match="view_retrieval"):
        evaluate_features(x, torch.full((20,), -1), x, torch.arange(20))


def test_nonpositive_k_is_refused():
    with pytest.raises(InputError, match="k=0"):
        evaluate_features(*digits(), k=0)
