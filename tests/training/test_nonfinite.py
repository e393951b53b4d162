import torch
from torch import nn

from coulomb.training.module import first_nonfinite, save_batch


class Poison(nn.Module):
    def forward(self, x):
        return x / 0


def network(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*layers)


def find(model, x):
    return first_nonfinite(model, {"view0": x}, lambda: model(x).sum())


def test_names_the_layer():
    model = network(nn.Linear(3, 3), Poison(), nn.ReLU())
    assert "output of 1 (Poison)" in find(model, torch.ones(2, 3))


def test_names_the_parameter_first():
    model = network(nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].bias.data[0] = float("inf")
    assert "parameter 1.bias" in find(model, torch.ones(2, 3))


def test_names_the_input():
    assert "input view0" in find(network(nn.Linear(3, 3)), torch.full((2, 3), float("nan")))


def test_nothing_else_found():
    assert find(network(nn.Linear(3, 3)), torch.ones(2, 3)) is None


def test_a_loss_that_refuses_does_not_hide_the_culprit():
    def refuse():
        model(torch.ones(2, 3))
        raise ValueError("NaN features")

    model = network(nn.Linear(3, 3), Poison())
    assert first_nonfinite(model, {}, refuse) == "output of 1 (Poison)"


def test_the_batch_is_kept(tmp_path):
    path = save_batch({"view0": torch.ones(2, 3)}, tmp_path)
    assert torch.equal(torch.load(path, weights_only=True)["view0"], torch.ones(2, 3))
