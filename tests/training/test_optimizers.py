import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coulomb.models import Tower, build_encoder
from coulomb.models.tuning import Tune
from coulomb.training.optimizers import LARS, Muon, build_optimizer, orthogonalized, parameter_groups, rate
from coulomb.training.plan.config import SCHEDULES, Config


def small_network():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


def test_norms_and_biases_do_not_decay():
    model = small_network()
    decays, stays = parameter_groups(model, 0.1)
    assert [p.ndim for p in decays["params"]] == [4, 2]
    assert all(p.ndim == 1 for p in stays["params"]) and len(stays["params"]) == 4
    assert decays["weight_decay"] == 0.1 and stays["weight_decay"] == 0.0


def test_frozen_parameters_are_left_out():
    model = small_network()
    model[0].weight.requires_grad_(False)
    assert sum(len(group["params"]) for group in parameter_groups(model, 0.1)) == 5


@pytest.mark.parametrize(
    ("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW), ("lars", LARS), ("muon", Muon)]
)
def test_optimizers_by_name(name, kind):
    optimizer = build_optimizer(small_network(), Config(optimizer=name, lr=0.3, weight_decay=0.2))
    assert type(optimizer) is kind
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    if name == "lars":
        assert [group["adapt"] for group in optimizer.param_groups] == [True, False]


def lars_by_hand(w, gradients, lr, momentum, decay, trust):
    v = np.zeros_like(w)
    for g in gradients:
        g = g + decay * w
        v = momentum * v + trust * np.linalg.norm(w) / np.linalg.norm(g) * g
        w = w - lr * v
    return w


def test_lars_follows_the_formula():
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(5, 3)), rng.normal(size=(4, 5, 3))
    weight = nn.Parameter(torch.tensor(start))
    optimizer = LARS([weight], lr=0.7, momentum=0.8, weight_decay=0.01)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    np.testing.assert_allclose(
        weight.detach().numpy(), lars_by_hand(start, gradients, 0.7, 0.8, 0.01, 1e-3), rtol=1e-12
    )


def test_lars_moves_a_zero_weight():
    weight = nn.Parameter(torch.zeros(2, 2))
    optimizer = LARS([weight], lr=1.0)
    weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(weight.detach(), -torch.ones(2, 2))


@pytest.mark.parametrize("shape", [(6, 6), (4, 30), (30, 4), (1, 5), (5, 1)])
def test_orthogonalized_keeps_directions_and_equalizes_singular_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalized(matrix)
    directions = u.T @ found @ v.T
    values = directions.diagonal()
    large = s > 0.05 * s.max()
    assert ((values > 0.65) & (values < 1.25))[large].all()
    torch.testing.assert_close(directions, values.diag(), atol=2e-3, rtol=0)
    torch.testing.assert_close(orthogonalized(7 * matrix), found, atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(5, 3), (3, 2, 3, 3), (8, 1, 3, 3)])
def test_muon_follows_the_formula(shape):
    draw = torch.Generator().manual_seed(0)
    start, gradients = torch.randn(shape, generator=draw), torch.randn(4, *shape, generator=draw)
    weight = nn.Parameter(start.clone())
    if len(shape) == 4:
        weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    optimizer = Muon([weight], lr=0.02, momentum=0.9, weight_decay=0.5)
    expected, average = start.double(), torch.zeros(shape, dtype=torch.float64)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        average = 0.9 * average + 0.1 * gradient
        update = 0.1 * gradient + 0.9 * average
        rows, columns = shape[0], start[0].numel()
        matrix = orthogonalized(update.reshape(rows, columns).float()).double().reshape(shape)
        expected = (1 - 0.02 * 0.5) * expected - 0.02 * max(1, rows / columns) ** 0.5 * matrix
    torch.testing.assert_close(weight.detach().double(), expected, atol=1e-4, rtol=1e-4)


def test_muon_moves_vectors_along_their_momentum():
    weight, scalar, still = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(())), nn.Parameter(torch.ones(3))
    optimizer = Muon([weight, scalar, still], lr=0.1)
    weight.grad, scalar.grad, still.grad = torch.tensor([3.0, 0.0, -4.0, 0.0]), torch.tensor(-7.0), torch.zeros(3)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), -0.1 * 0.15 * 2 * torch.tensor([0.6, 0.0, -0.8, 0.0]))
    torch.testing.assert_close(scalar.detach(), torch.tensor(0.015))
    assert torch.equal(still.detach(), torch.ones(3))


def test_muon_leaves_a_weight_without_gradient_finite():
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.zeros(2, 3)
    Muon([weight], lr=0.1).step()
    assert torch.equal(weight.detach(), torch.ones(2, 3))


def test_submodules_in_constant_lr_keep_their_learning_rate():
    model = nn.Module()
    model.first, model.predictor, model.constant_lr = small_network(), nn.Linear(2, 3), ("predictor",)
    groups = parameter_groups(model, 0.1)
    constant = {id(p) for group in groups if group["constant_lr"] for p in group["params"]}
    assert constant == {id(p) for p in model.predictor.parameters()}
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def tuned_method(name, **options):
    method = nn.Module()
    encoder = build_encoder(name, channels=3, image_size=16, width=12, **options)
    method.tower = Tower(encoder, embedding_dim=2, head_layers=1)
    return method


def rates(method, config):
    """Learning rates by the name of the parameter."""
    names = {id(p): name for name, p in method.named_parameters()}
    groups = build_optimizer(method, config).param_groups
    return {
        names[id(p)].removeprefix("tower.encoder.backbone."): group["lr"] for group in groups for p in group["params"]
    }


def test_layer_decay_multiplies_the_learning_rate_by_block():
    method = tuned_method("vit")
    found = rates(method, Config(lr=0.1, layer_decay=0.75, optimizer="adamw"))
    expected = {"embed": 7, "positions": 7, "norm": 0, "tower.head": 0} | {f"blocks.{i}": 6 - i for i in range(6)}
    assert len(found) == len(list(method.parameters()))
    for name, lr in found.items():
        power = next(power for start, power in expected.items() if name.startswith(start))
        assert math.isclose(lr, 0.1 * 0.75**power), name


def test_layer_decay_of_a_partly_frozen_and_of_an_adapted_encoder():
    method = tuned_method("resnet10")
    Tune.parse("last:2").apply(method.tower.encoder)
    found = rates(method, Config(lr=0.1, layer_decay=0.5))
    assert {lr for name, lr in found.items() if name.startswith("stages.2")} == {0.1 * 0.5**2}
    assert {lr for name, lr in found.items() if name.startswith("stages.3")} == {0.1 * 0.5}
    assert {name.split(".")[1] for name in found if name.startswith("stages")} == {"2", "3"}
    pytest.importorskip("peft", reason="peft is not installed")
    method = tuned_method("convnet", stages=2)
    Tune.parse("lora:2").apply(method.tower.encoder)
    found = rates(method, Config(lr=0.1, layer_decay=0.5))
    by_layer = {name.split(".")[1]: lr for name, lr in found.items() if name.startswith("layers")}
    assert by_layer == {"0": 0.1 * 0.5**2, "3": 0.1 * 0.5}


def test_layer_decay_keeps_constant_learning_rates_and_the_first_group_has_the_largest():
    method = tuned_method("resnet10")
    method.predictor, method.constant_lr = nn.Linear(2, 2), ("predictor",)
    groups = parameter_groups(method, 0.1, 0.5)
    constant = [group for group in groups if group["constant_lr"]]
    assert {id(p) for group in constant for p in group["params"]} == {id(p) for p in method.predictor.parameters()}
    assert {group["lr_factor"] for group in constant} == {1.0}
    factors = [group["lr_factor"] for group in groups if not group["constant_lr"]]
    assert factors == sorted(factors, reverse=True) and factors[0] == 1.0 and len(set(factors)) == 6


def test_without_layer_decay_groups_are_those_of_earlier_checkpoints():
    groups = build_optimizer(tuned_method("resnet10"), Config(lr=0.1)).param_groups
    assert [group["lr"] for group in groups] == [0.1, 0.1]
    assert set(groups[0]) == set(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1).param_groups[0]) | {
        "constant_lr"
    }


def test_warms_up_linearly_then_falls_to_zero():
    factors = [rate("cosine", step, total=100, warmup=10) for step in range(101)]
    assert factors[:3] == [0.1, 0.2, 0.3]
    assert factors[9] == factors[10] == 1.0
    assert math.isclose(factors[55], 0.5)
    assert factors[100] == 0.0
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))


def test_steps_divide_by_ten():
    factors = [rate("step", step, total=100, warmup=10, drops=[0.6, 0.8]) for step in (9, 10, 59, 60, 79, 80, 100)]
    assert factors == [1.0, 1.0, 1.0, 0.1, 0.1, 0.1**2, 0.1**2]


def test_constant_after_the_warm_up():
    assert [rate("constant", step, total=100, warmup=4) for step in (0, 1, 4, 99)] == [0.25, 0.5, 1.0, 1.0]


@given(kind=st.sampled_from(SCHEDULES), total=st.integers(0, 50), warmup=st.integers(0, 50), step=st.integers(0, 120))
def test_stays_between_zero_and_one(kind, total, warmup, step):
    assert 0 <= rate(kind, step, total=total, warmup=warmup, drops=[0.5]) <= 1
