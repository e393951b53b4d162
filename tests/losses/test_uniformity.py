import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import UniformityLoss


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("t", [0.5, 2])
def test_equals_the_authors_code(t):
    x = normal(20, 3)
    truth = torch.pdist(normalize(x)).square().mul(-t).exp().mean().log()
    torch.testing.assert_close(UniformityLoss(t)(x), truth)
    torch.testing.assert_close(
        UniformityLoss(t, normalize=False)(x), torch.pdist(x).square().mul(-t).exp().mean().log()
    )


def test_uniform_samples_give_the_theoretical_value():
    assert UniformityLoss()(normal(2000, 128).float()).item() == pytest.approx(-3.94, abs=0.01)


def test_reductions_are_consistent():
    x = normal(9, 3)
    rows = UniformityLoss(reduction="none")(x)
    assert rows.shape == (9,)
    torch.testing.assert_close(UniformityLoss()(x), rows.exp().mean().log())
    torch.testing.assert_close(UniformityLoss(reduction="sum")(x), rows.sum())


def test_distances_far_from_the_origin_keep_precision():
    x = normal(12, 3).float()
    near, far = UniformityLoss(normalize=False)(x), UniformityLoss(normalize=False)(x + 1000)
    assert far.item() == pytest.approx(near.item(), abs=2e-3)  # x + 1000 is rounded to 6e-5


def test_training_spreads_the_samples():
    x = normal(6, 2).requires_grad_()
    loss = UniformityLoss()
    before = loss(x)
    (grad,) = torch.autograd.grad(before, x)
    assert loss(x - 0.1 * grad).item() < before.item()


@pytest.mark.parametrize("unit", [True, False])
def test_a_single_sample_warns(unit):
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.warns(CoulombWarning, match="1 of 1 samples"):
        loss = UniformityLoss(normalize=unit)(x)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(x.grad, torch.zeros(1, 2))


def test_invalid_arguments_raise():
    for t in (0, -1, math.inf):
        with pytest.raises(ValueError, match="^t "):
            UniformityLoss(t)
