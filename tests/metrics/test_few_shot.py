import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from coulomb.errors import InputError
from coulomb.metrics.linear import FEW_SHOT_C, class_orders, few_shot, fit_logistic, predict_from_few


def digits():
    x, y = load_digits(return_X_y=True)
    return (x[:1400] / 16, y[:1400], x[1400:] / 16, y[1400:])


def test_raw_digits_are_where_others_found_them():
    found = few_shot(*digits(), draws=5)
    means = [found["shots"][str(k)]["mean"] for k in (1, 5, 10)]
    for mean, known in zip(means, (0.63, 0.84, 0.88), strict=True):
        assert abs(mean - known) < 0.06
    assert found["shots"]["1"]["std"] > found["shots"]["10"]["std"] > 0
    assert found["protocol"]["fits_not_converged"] == 0
    json.dumps(found)


def test_deterministic():
    first, again = few_shot(*digits(), shots=(2,), draws=3, seed=4), few_shot(*digits(), shots=(2,), draws=3, seed=4)
    other = few_shot(*digits(), shots=(2,), draws=3, seed=5)
    assert first == again
    assert first["shots"] != other["shots"]


def test_global_generator_neither_read_nor_moved():
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = (torch.get_rng_state(), np.random.get_state()[1].copy())  # noqa: NPY002
    few_shot(*digits(), shots=(1,), draws=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_draws_are_of_each_class_and_differ():
    labels = np.repeat([4, 7, 9], [5, 30, 40])
    first, second = class_orders(labels, 0, 0), class_orders(labels, 0, 1)
    assert [set(labels[order]) for order in first] == [{4}, {7}, {9}]
    assert [len(set(order)) for order in first] == [5, 30, 40]
    assert any((a != b).any() for a, b in zip(first, second, strict=True))


def test_only_k_images_a_class_are_seen(monkeypatch):
    import importlib

    module = importlib.import_module("coulomb.metrics.linear")
    seen = []
    original = module.predict_from_few
    monkeypatch.setattr(module, "predict_from_few", lambda x, y, t: seen.append((x, y)) or original(x, y, t))
    few_shot(*digits(), shots=(1, 5), draws=2)
    assert [y.bincount().tolist() for _, y in seen] == [[1] * 10, [5] * 10] * 2
    torch.testing.assert_close(seen[1][0].norm(dim=1), torch.ones(50))
    rows = {tuple(row) for row in seen[1][0].numpy()}
    assert {tuple(row) for row in seen[0][0].numpy()} < rows  # nested
    assert {tuple(row) for row in seen[3][0].numpy()} != rows


def test_features_do_not_change_the_draw():
    _, y, _, _ = digits()
    assert all((a == b).all() for a, b in zip(class_orders(y, 3, 0), class_orders(y, 3, 0), strict=True))


def test_short_classes_are_counted():
    x, y, test_x, test_y = digits()
    keep = (y != 3) | (np.cumsum(y == 3) <= 4)
    found = few_shot(x[keep], y[keep], test_x, test_y, shots=(4, 5), draws=2)
    assert found["protocol"]["classes_short_of_images"] == {"4": 0, "5": 1}


def test_one_draw_has_no_deviation():
    assert few_shot(*digits(), shots=(1,), draws=1)["shots"]["1"]["std"] == 0.0


@pytest.mark.parametrize("bad", [{"shots": ()}, {"shots": (0,)}, {"draws": 0}])
def test_bad_options(bad):
    with pytest.raises(InputError, match="must be at least 1"):
        few_shot(*digits(), **bad)


def test_one_class():
    x, y, test_x, test_y = digits()
    with pytest.raises(InputError, match="one class"):
        few_shot(x, np.where(y == 1, 1, -1), test_x, test_y)


def test_fewer_rows_than_features_is_the_same_problem():
    """The fit in the span of the rows predicts what the fit on all features does."""

    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 40, generator=draw), torch.arange(12) % 3
    test_x = torch.randn(500, 40, generator=draw)
    whole, _ = fit_logistic(x, y, FEW_SHOT_C)
    predicted, converged = predict_from_few(x, y, test_x)
    assert converged
    assert (predicted.numpy() == whole.predict(test_x.numpy())).mean() > 0.99
