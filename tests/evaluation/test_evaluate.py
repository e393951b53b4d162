import json

import pytest
import torch
from sklearn.datasets import load_digits

from coulomb.errors import InputError
from coulomb.evaluation import evaluate_features, few_shot, knn_accuracy, linear_probe


def digits():
    x, y = load_digits(return_X_y=True)
    return [x[:500] / 16, y[:500], x[500:800] / 16, y[500:800]]


def test_everything_with_its_protocol():
    train_x, train_y, test_x, test_y = digits()
    train_y[:10] = -1
    test_y[:7] = -1
    found = evaluate_features(train_x, train_y, test_x, test_y, k=5, sigma=0.07, seed=2, shots=(1, 3), draws=2)
    assert set(found) == {"knn", "linear", "few_shot", "protocol"}
    assert found["knn"] == knn_accuracy(train_x, train_y, test_x, test_y, k=5, sigma=0.07)
    assert found["linear"] == linear_probe(train_x, train_y, test_x, test_y, seed=2)["accuracy"]
    assert found["few_shot"] == few_shot(train_x, train_y, test_x, test_y, (1, 3), 2, 2)["shots"]
    assert set(found["few_shot"]) == {"1", "3"}
    protocol = found["protocol"]
    assert (protocol["train"], protocol["test"]) == (490, 293)
    assert (protocol["train_unlabelled"], protocol["test_unlabelled"]) == (10, 7)
    assert protocol["knn"]["k"] == protocol["knn"]["k_asked"] == 5
    assert protocol["knn"]["sigma"] == 0.07
    assert (protocol["classes"], protocol["features"], protocol["seed"]) == (10, 64, 2)
    assert protocol["test_of_classes_not_in_train"] == 0
    assert json.loads(json.dumps(found)) == found


def test_k_above_the_training_set_is_lowered_and_said():
    train_x, train_y, test_x, test_y = digits()
    train_y[60:] = -1
    found = evaluate_features(train_x, train_y, test_x, test_y, k=200, draws=1, shots=(1,))
    assert (found["protocol"]["knn"]["k"], found["protocol"]["knn"]["k_asked"]) == (60, 200)
    assert found["knn"] == knn_accuracy(train_x, train_y, test_x, test_y, k=60)


def test_classes_that_training_never_saw_are_counted():
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


def test_no_labels():
    x = torch.rand(20, 4)
    with pytest.raises(InputError, match="view_retrieval"):
        evaluate_features(x, torch.full((20,), -1), x, torch.arange(20))


def test_nonpositive_k_is_refused():
    with pytest.raises(InputError, match="k=0"):
        evaluate_features(*digits(), k=0)
