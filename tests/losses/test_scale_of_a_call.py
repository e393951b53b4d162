"""A scale, and a bias, given with a call of a loss: in value, in gradient, and against what the loss has itself."""

import math

import pytest
import torch

from coulomb.losses import (
    DecoupledLoss,
    HardContrastiveLoss,
    InfoNCELoss,
    LearnableTemperature,
    NTXentLoss,
    SigmoidLoss,
    SupConLoss,
)
from coulomb.similarity import policy, use_backend
from coulomb.training.watching.loss_inputs import Labels, read_inputs
from law_rows import all_rows
from view_cases import normal

ROWS = all_rows()
N, D = 7, 5
QUEUE = normal(2 * N + 1, D, seed=3).double()
# name → (constructor, call with views x, y and a scale, loop of tests/law_rows over x, y at a temperature)
LOSSES = {
    "InfoNCE": (InfoNCELoss, lambda f, x, y, s: f(x, y, scale=s), "InfoNCELoss", ()),
    "InfoNCE symmetric": (
        lambda *a, **k: InfoNCELoss(*a, symmetric=True, **k),
        lambda f, x, y, s: f(x, y, scale=s),
        "InfoNCELoss symmetric",
        (),
    ),
    "InfoNCE queue": (InfoNCELoss, lambda f, x, y, s: f(x, y, QUEUE, scale=s), "InfoNCELoss queue", (QUEUE,)),
    "InfoNCE, equal ids are positives": (
        lambda *a, **k: InfoNCELoss(*a, same_id="positive", **k),
        lambda f, x, y, s: f(x, y, ids=torch.arange(N) // 2, scale=s),
        "InfoNCELoss equal ids are positives",
        (torch.arange(N) // 2,),
    ),
    "NTXent": (NTXentLoss, lambda f, x, y, s: f(x, y, scale=s), "NTXentLoss", ()),
    "Decoupled": (DecoupledLoss, lambda f, x, y, s: f(x, y, scale=s), "DecoupledLoss", ()),
    "HardContrastive": (
        lambda *a, **k: HardContrastiveLoss(*a, top_k=3, **k),
        lambda f, x, y, s: f(x, y, scale=s),
        "HardContrastiveLoss",
        (),
    ),
    "SupCon": (SupConLoss, lambda f, x, y, s: f(torch.stack([x, y], 1), scale=s), None, ()),
}
each_loss = pytest.mark.parametrize("name", LOSSES)
PATHS = {"stored": {}, "streaming": {"stored": 0, "tile": 3}, "dense": {"backend": "dense"}}


def pair(seed=0, dtype=torch.float64):
    return [normal(N, D, seed=seed + k).to(dtype).requires_grad_() for k in range(2)]


@each_loss
@pytest.mark.parametrize("path", PATHS)
def test_equals_the_formula_in_value_and_in_every_gradient(name, path):
    make, call, row, more = LOSSES[name]
    x, y = pair()
    scale = torch.tensor(6.0, dtype=torch.float64, requires_grad=True)
    if row is None:  # without labels it is NT-Xent
        value = ROWS["NTXentLoss"].loop(1 / scale, x, y).mean()
    else:
        value = ROWS[row].loop(1 / scale, x, y, *more).mean()
    truth = [value, *torch.autograd.grad(value, [x, y, scale])]
    with policy.override(**PATHS[path]):
        ours = call(make(), x, y, scale)
        ours = [ours, *torch.autograd.grad(ours, [x, y, scale])]
    for mine, right in zip(ours, truth, strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-10)


@each_loss
def test_a_number_replaces_the_temperature(name):
    make, call, *_ = LOSSES[name]
    x, y = pair()
    torch.testing.assert_close(call(make(), x, y, 8.0), call(make(1 / 8), x, y, None), rtol=0, atol=1e-12)


@each_loss
def test_a_learnable_temperature_is_named(name):
    make, call, *_ = LOSSES[name]
    x, y = pair()
    with pytest.raises(ValueError, match="^scale with a LearnableTemperature"):
        call(make(LearnableTemperature()), x, y, torch.tensor(10.0))


@each_loss
@pytest.mark.parametrize(
    ("scale", "error", "match"),
    [
        (torch.ones(1), ValueError, r"^scale must be .*\(1,\)"),
        (torch.tensor(3), TypeError, "^scale must be .*int64"),
        (torch.tensor(math.nan), ValueError, "^scale must be finite"),
        (torch.tensor(-2.0), ValueError, "^scale must be .*above 0, got -2"),
        (0, ValueError, "^scale must be .*above 0, got 0"),
        ("high", TypeError, "^scale must be a number, got str"),
    ],
)
def test_other_scales_are_named(name, scale, error, match):
    make, call, *_ = LOSSES[name]
    with pytest.raises(error, match=match):
        call(make(), *pair(), scale)


def test_base_temperature_with_a_scale_is_named():
    with pytest.raises(ValueError, match="^scale with base_temperature"):
        SupConLoss(base_temperature=0.07)(torch.stack(pair(), 1), scale=10.0)


def test_the_diagnosis_is_in_cosines_whatever_the_scale():
    x, y = pair()
    scale = torch.tensor(6.0, dtype=torch.float64, requires_grad=True)
    loss, seen = InfoNCELoss(diagnose=True)(x, y, scale=scale)
    _, same = InfoNCELoss(1 / 6, diagnose=True)(x, y)
    assert loss.requires_grad and not seen.positive.requires_grad
    for name in ("positive", "hardest_negative", "effective_negatives"):
        torch.testing.assert_close(getattr(seen, name), getattr(same, name))


def test_half_precision_rows_with_a_scale_in_full_precision():
    x, y = pair(dtype=torch.bfloat16)
    scale = torch.tensor(6.0, requires_grad=True)
    loss = InfoNCELoss(symmetric=True)(x, y, scale=scale)
    loss.backward()
    assert (loss.dtype, x.grad.dtype, scale.grad.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    wide = [part.detach().double() for part in (x, y)]
    exact = torch.tensor(6.0, dtype=torch.float64, requires_grad=True)
    truth = InfoNCELoss(symmetric=True)(*wide, scale=exact)
    torch.testing.assert_close(loss.double(), truth, rtol=0, atol=1e-5)
    torch.testing.assert_close(scale.grad.double(), torch.autograd.grad(truth, exact)[0], rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("default")
def test_compiles_and_has_second_derivatives():
    x, y = pair(dtype=torch.float32)
    scale = torch.tensor(6.0, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(InfoNCELoss(), fullgraph=True, backend="aot_eager")
    results = []
    for loss in (compiled, InfoNCELoss()):
        value = loss(x, y, scale=scale)
        results.append([value, *torch.autograd.grad(value, [x, scale])])
    for mine, eager in zip(*results, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-6)
    with use_backend("dense"):
        x, y = pair()
        assert torch.autograd.gradgradcheck(
            lambda x, s: InfoNCELoss()(x, y, scale=s), (x, scale.detach().double().requires_grad_())
        )


def test_hardness_is_measured_at_the_scale_of_the_call():
    x, y = pair(dtype=torch.float32)
    by_scale = read_inputs(
        InfoNCELoss(), (x, y), {"scale": torch.tensor(4.0, requires_grad=True)}, InfoNCELoss(), Labels()
    )
    by_temperature = read_inputs(InfoNCELoss(0.25), (x, y), {}, InfoNCELoss(), Labels())
    assert by_scale.hardness.as_dict() == pytest.approx(by_temperature.hardness.as_dict())


# The sigmoid loss, which has a scale and a bias.


def test_sigmoid_equals_its_formula_in_value_and_in_every_gradient():
    x, y = pair()
    scale, bias = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (6.0, -2.0))
    rows = [part / part.norm(dim=1, keepdim=True) for part in (x, y)]
    value = 0
    for i in range(N):
        for j in range(N):
            score = scale * rows[0][i] @ rows[1][j] + bias
            value = value + torch.nn.functional.softplus(-score if i == j else score) / N
    truth = [value, *torch.autograd.grad(value, [x, y, scale, bias])]
    for changes in PATHS.values():
        with policy.override(**changes):
            ours = SigmoidLoss(learnable=False)(x, y, scale=scale, bias=bias)
            for mine, right in zip([ours, *torch.autograd.grad(ours, [x, y, scale, bias])], truth, strict=True):
                torch.testing.assert_close(mine, right, rtol=0, atol=1e-10)


def test_sigmoid_takes_one_of_both_and_keeps_the_other():
    x, y = pair()
    loss = SigmoidLoss(4.0, -1.0, learnable=False)
    torch.testing.assert_close(loss(x, y, scale=6.0), SigmoidLoss(6.0, -1.0, learnable=False)(x, y))
    torch.testing.assert_close(loss(x, y, bias=torch.tensor(-3.0)), SigmoidLoss(4.0, -3.0, learnable=False)(x, y))
    torch.testing.assert_close(loss(x, y, bias=0.0), SigmoidLoss(4.0, 0.0, learnable=False)(x, y))


def test_sigmoid_that_learns_its_own_names_the_conflict():
    with pytest.raises(ValueError, match="^scale and bias with learnable=True"):
        SigmoidLoss()(*pair(), scale=10.0, bias=-10.0)
    with pytest.raises(ValueError, match="^bias with learnable=True"):
        SigmoidLoss()(*pair(), bias=-10.0)
    with pytest.raises(ValueError, match="^bias must be finite"):
        SigmoidLoss(learnable=False)(*pair(), bias=torch.tensor(math.inf))
