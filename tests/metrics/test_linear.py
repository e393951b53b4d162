import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from coulomb.ground.errors import InputError
from coulomb.metrics import linear
from coulomb.metrics.linear import (
    FEW_SHOT_C,
    class_orders,
    few_shot,
    fit_few,
    fit_logistic,
    linear_probe,
    predict_from_few,
)


def gaussians(n, seed, dim=8, classes=4, noise=1.5):
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, dim))
    y = generator.integers(0, classes, n)
    return (3 * (centers[y] + noise * generator.normal(size=(n, dim))) + 7).astype(np.float32), y


def test_probe_is_logistic_regression_on_standardized_features():
    train, test = gaussians(600, 0), gaussians(400, 1)
    found = linear_probe(*train, *test, seed=3)
    mean, std = train[0].mean(0), train[0].std(0)
    model = LogisticRegression(C=found["protocol"]["C"], max_iter=1000)
    expected = model.fit((train[0] - mean) / std, train[1]).score((test[0] - mean) / std, test[1])
    assert found["accuracy"] == pytest.approx(expected, abs=0.005)
    assert 0.5 < found["accuracy"] < 0.95
    assert found["protocol"]["converged"] is True
    json.dumps(found)


def test_probe_does_not_choose_by_test_images(monkeypatch):
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


def test_C_is_best_on_the_held_out_part():
    train, test = gaussians(500, 0, dim=60, noise=4), gaussians(200, 1, dim=60, noise=4)
    protocol = linear_probe(*train, *test)["protocol"]
    best = max(protocol["C_accuracies"].values())
    equal = [float(C) for C, accuracy in protocol["C_accuracies"].items() if accuracy == best]
    assert protocol["C"] == min(equal)
    assert len(set(protocol["C_accuracies"].values())) > 1


def test_probe_depends_on_the_seed():
    train, test = gaussians(200, 0), gaussians(100, 1)
    assert linear_probe(*train, *test, seed=1) == linear_probe(*train, *test, seed=1)
    first, second = (linear_probe(*train, *test, seed=seed)["protocol"]["C_accuracies"] for seed in (1, 2))
    assert first != second


def test_constant_features_and_large_scales():
    train, test = gaussians(200, 0), gaussians(100, 1)
    plain = linear_probe(*train, *test)["accuracy"]
    wide = [np.concatenate([x * 1000, np.full((len(x), 3), 5e4, np.float32)], axis=1) for x in (train[0], test[0])]
    assert linear_probe(wide[0], train[1], wide[1], test[1])["accuracy"] == pytest.approx(plain, abs=0.011)
    constant = linear_probe(np.ones((50, 2), np.float32), train[1][:50], np.ones((9, 2), np.float32), test[1][:9])
    assert 0 <= constant["accuracy"] <= 1


def test_rows_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 150)
    train, test = gaussians(200, 0), gaussians(100, 1)
    protocol = linear_probe(*train, *test)["protocol"]
    assert (protocol["train"], protocol["train_left_out"]) == (150, 50)


def test_protocol_records_convergence(monkeypatch):
    monkeypatch.setattr(linear, "ITERATIONS", 2)
    assert linear_probe(*gaussians(200, 0), *gaussians(100, 1))["protocol"]["converged"] is False


def test_few_images_and_two_classes():
    x = torch.tensor([[0.0], [1.0], [0.1], [0.9]])
    found = linear_probe(x, torch.tensor([3, 8, 3, 8]), x, torch.tensor([3, 8, 8, -1]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["protocol"]["C"] == 1.0 and found["protocol"]["C_accuracies"] == {}
    with pytest.raises(InputError, match="one class only"):
        linear_probe(x, torch.zeros(4, dtype=torch.long), x, torch.zeros(4, dtype=torch.long))


def test_smallest_C_of_equal_accuracies(monkeypatch):
    monkeypatch.setattr(linear, "score", lambda *_: 0.5)
    assert linear_probe(*gaussians(100, 0), *gaussians(50, 1))["protocol"]["C"] == min(linear.GRID)
    monkeypatch.setattr(linear, "score", lambda model, *_: model.C)
    assert linear_probe(*gaussians(100, 0), *gaussians(50, 1))["protocol"]["C"] == max(linear.GRID)


def digits():
    x, y = load_digits(return_X_y=True)
    return (x[:1400] / 16, y[:1400], x[1400:] / 16, y[1400:])


def test_few_shot_of_raw_digits_matches_published_values():
    found = few_shot(*digits(), draws=5)
    means = [found["shots"][str(k)]["mean"] for k in (1, 5, 10)]
    for mean, known in zip(means, (0.63, 0.84, 0.88), strict=True):
        assert abs(mean - known) < 0.06
    assert found["shots"]["1"]["std"] > found["shots"]["10"]["std"] > 0
    assert found["protocol"]["fits_not_converged"] == 0
    json.dumps(found)


def test_few_shot_depends_on_the_seed():
    first, again = few_shot(*digits(), shots=(2,), draws=3, seed=4), few_shot(*digits(), shots=(2,), draws=3, seed=4)
    other = few_shot(*digits(), shots=(2,), draws=3, seed=5)
    assert first == again
    assert first["shots"] != other["shots"]


def test_few_shot_leaves_global_generators_alone():
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    few_shot(*digits(), shots=(1,), draws=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_draws_contain_each_class_and_differ():
    labels = np.repeat([4, 7, 9], [5, 30, 40])
    first, second = class_orders(labels, 0, 0), class_orders(labels, 0, 1)
    assert [set(labels[order]) for order in first] == [{4}, {7}, {9}]
    assert [len(set(order)) for order in first] == [5, 30, 40]
    assert any((a != b).any() for a, b in zip(first, second, strict=True))


def test_few_shot_uses_k_images_per_class(monkeypatch):
    seen = []
    original = predict_from_few
    monkeypatch.setattr(
        "coulomb.metrics.linear.predict_from_few", lambda x, y, t: seen.append((x, y)) or original(x, y, t)
    )
    few_shot(*digits(), shots=(1, 5), draws=2)
    assert [y.bincount().tolist() for _, y in seen] == [[1] * 10, [5] * 10] * 2
    torch.testing.assert_close(seen[1][0].norm(dim=1), torch.ones(50))
    rows = {tuple(row) for row in seen[1][0].numpy()}
    assert {tuple(row) for row in seen[0][0].numpy()} < rows  # nested
    assert {tuple(row) for row in seen[3][0].numpy()} != rows


def test_draws_are_deterministic():
    _, y, _, _ = digits()
    assert all((a == b).all() for a, b in zip(class_orders(y, 3, 0), class_orders(y, 3, 0), strict=True))


def test_classes_with_too_few_images_are_counted():
    x, y, test_x, test_y = digits()
    keep = (y != 3) | (np.cumsum(y == 3) <= 4)
    found = few_shot(x[keep], y[keep], test_x, test_y, shots=(4, 5), draws=2)
    assert found["protocol"]["classes_short_of_images"] == {"4": 0, "5": 1}


def test_deviation_of_one_draw_is_zero():
    assert few_shot(*digits(), shots=(1,), draws=1)["shots"]["1"]["std"] == 0.0


@pytest.mark.parametrize("bad", [{"shots": ()}, {"shots": (0,)}, {"draws": 0}])
def test_few_shot_refuses_invalid_options(bad):
    with pytest.raises(InputError, match="must be at least 1"):
        few_shot(*digits(), **bad)


def test_few_shot_refuses_one_class():
    x, y, test_x, test_y = digits()
    with pytest.raises(InputError, match="one class"):
        few_shot(x, np.where(y == 1, 1, -1), test_x, test_y)


@pytest.mark.parametrize(("rows", "features"), [(12, 40), (40, 12)], ids=["fewer rows than features", "more rows"])
@pytest.mark.parametrize("labels", [[0, 1, 2], [3, 7], [1, 4, 5, 9]], ids=str)
def test_a_fit_to_few_rows_is_that_of_scikit_learn(rows, features, labels):
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(rows, features, generator=draw), torch.tensor(labels)[torch.arange(rows) % len(labels)]
    test_x = torch.randn(500, features, generator=draw)
    whole, _ = fit_logistic(x, y, FEW_SHOT_C)
    predicted, converged = predict_from_few(x, y, test_x)
    assert converged
    assert (predicted.numpy() == whole.predict(test_x.numpy())).mean() > 0.99


@pytest.mark.parametrize("classes", [2, 3])
def test_the_optimum_of_few_rows_is_that_of_scikit_learn(classes):
    x, y = np.random.default_rng(0).normal(size=(40, 5)), np.arange(40) % classes  # classes overlap
    model, _ = fit_logistic(torch.from_numpy(x), torch.from_numpy(y), 0.3)
    weights, bias, converged = fit_few(x, y, 0.3)
    assert converged
    scores = x @ weights + bias
    theirs = model.decision_function(x)
    theirs = np.stack([0 * theirs, theirs], axis=1) if classes == 2 else theirs
    np.testing.assert_allclose(scores - scores[:, :1], theirs - theirs[:, :1], atol=2e-3)


def test_one_label_for_each_of_many_classes_is_no_warning():
    draw = np.random.default_rng(0)
    y = torch.arange(30).repeat(3)
    x = torch.from_numpy(draw.normal(size=(30, 8))[y] + 0.1 * draw.normal(size=(90, 8))).float()
    assert few_shot(x, y, x, y, shots=(1,), draws=2)["shots"]["1"]["mean"] > 0.9  # warnings are errors in tests
