import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from coulomb.errors import InputError
from coulomb.metrics import linear
from coulomb.metrics.linear import linear_probe


def gaussians(n, seed, dim=8, classes=4, noise=1.5):
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, dim))
    y = generator.integers(0, classes, n)
    return (3 * (centres[y] + noise * generator.normal(size=(n, dim))) + 7).astype(np.float32), y


def test_is_logistic_regression_on_standardised_features():
    train, test = gaussians(600, 0), gaussians(400, 1)
    found = linear_probe(*train, *test, seed=3)
    mean, std = train[0].mean(0), train[0].std(0)
    model = LogisticRegression(C=found["protocol"]["C"], max_iter=1000)
    expected = model.fit((train[0] - mean) / std, train[1]).score((test[0] - mean) / std, test[1])
    assert found["accuracy"] == pytest.approx(expected, abs=0.005)
    assert 0.5 < found["accuracy"] < 0.95
    assert found["protocol"]["converged"] is True
    json.dumps(found)


def test_test_images_choose_nothing(monkeypatch):
    train, test = gaussians(300, 0), gaussians(200, 1)
    plain = linear_probe(*train, *test)["protocol"]
    # Other test images, other test labels: nothing that was chosen may differ.
    other = linear_probe(*train, -9 * test[0], np.zeros(200, dtype=int))["protocol"]
    assert plain == other
    seen = []
    original = linear.fit_logistic
    monkeypatch.setattr(linear, "fit_logistic", lambda x, *rest: seen.append(x) or original(x, *rest))
    linear_probe(*train, *test)
    assert [len(x) for x in seen] == [240] * len(linear.GRID) + [300]


def test_C_is_the_best_on_the_held_out_part():
    train, test = gaussians(500, 0, dim=60, noise=4), gaussians(200, 1, dim=60, noise=4)
    protocol = linear_probe(*train, *test)["protocol"]
    best = max(protocol["C_accuracies"].values())
    equal = [float(C) for C, accuracy in protocol["C_accuracies"].items() if accuracy == best]
    assert protocol["C"] == min(equal)
    assert len(set(protocol["C_accuracies"].values())) > 1


def test_same_seed_same_result_other_seed_other_draw():
    train, test = gaussians(200, 0), gaussians(100, 1)
    assert linear_probe(*train, *test, seed=1) == linear_probe(*train, *test, seed=1)
    first, second = (linear_probe(*train, *test, seed=seed)["protocol"]["C_accuracies"] for seed in (1, 2))
    assert first != second


def test_constant_features_and_huge_scales_do_no_harm():
    train, test = gaussians(200, 0), gaussians(100, 1)
    plain = linear_probe(*train, *test)["accuracy"]
    wide = [np.concatenate([x * 1000, np.full((len(x), 3), 5e4, np.float32)], axis=1) for x in (train[0], test[0])]
    assert linear_probe(wide[0], train[1], wide[1], test[1])["accuracy"] == pytest.approx(plain, abs=0.011)
    constant = linear_probe(np.ones((50, 2), np.float32), train[1][:50], np.ones((9, 2), np.float32), test[1][:9])
    assert 0 <= constant["accuracy"] <= 1


def test_rows_beyond_the_cap_are_counted(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 150)
    train, test = gaussians(200, 0), gaussians(100, 1)
    protocol = linear_probe(*train, *test)["protocol"]
    assert (protocol["train"], protocol["train_left_out"]) == (150, 50)


def test_not_converged_is_said(monkeypatch):
    monkeypatch.setattr(linear, "ITERATIONS", 2)
    assert linear_probe(*gaussians(200, 0), *gaussians(100, 1))["protocol"]["converged"] is False


def test_few_images_and_two_classes():
    x = torch.tensor([[0.0], [1.0], [0.1], [0.9]])
    found = linear_probe(x, torch.tensor([3, 8, 3, 8]), x, torch.tensor([3, 8, 8, -1]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["protocol"]["C"] == 1.0 and found["protocol"]["C_accuracies"] == {}
    with pytest.raises(InputError, match="one class only"):
        linear_probe(x, torch.zeros(4, dtype=torch.long), x, torch.zeros(4, dtype=torch.long))


def test_of_equal_Cs_the_smallest(monkeypatch):
    monkeypatch.setattr(linear, "score", lambda *_: 0.5)
    assert linear_probe(*gaussians(100, 0), *gaussians(50, 1))["protocol"]["C"] == min(linear.GRID)
    monkeypatch.setattr(linear, "score", lambda model, *_: model.C)
    assert linear_probe(*gaussians(100, 0), *gaussians(50, 1))["protocol"]["C"] == max(linear.GRID)
