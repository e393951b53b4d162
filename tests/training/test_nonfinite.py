import pytest
import torch
from torch import nn

from coulomb.errors import NonFiniteError
from coulomb.training.nonfinite import stop_on_nonfinite


class Poison(nn.Module):
    def forward(self, x):
        return x / 0


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers)


def stop(model, x, tmp_path):
    with pytest.raises(NonFiniteError) as error:
        stop_on_nonfinite(model, {"view0": x}, lambda: model(x).sum(), tmp_path, step=7)
    assert "step 7" in str(error.value)
    saved = torch.load(tmp_path / "nonfinite-batch.pt", weights_only=True)
    assert torch.equal(saved["view0"], x) or not torch.isfinite(x).all()
    return str(error.value)


def test_names_the_layer(tmp_path):
    model = network(nn.Linear(3, 3), Poison(), nn.ReLU())
    assert "output of 1 (Poison)" in stop(model, torch.ones(2, 3), tmp_path)


def test_names_the_parameter_first(tmp_path):
    model = network(nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].bias.data[0] = float("inf")
    assert "parameter 1.bias" in stop(model, torch.ones(2, 3), tmp_path)


def test_names_the_input(tmp_path):
    assert "input view0" in stop(network(nn.Linear(3, 3)), torch.full((2, 3), float("nan")), tmp_path)


def test_nothing_else_found(tmp_path):
    assert "the loss itself" in stop(network(nn.Linear(3, 3)), torch.ones(2, 3), tmp_path)
