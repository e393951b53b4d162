import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.losses import AlignmentLoss


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("alpha", [1, 2, 3.5])
def test_equals_the_authors_code(alpha):
    x, y = normal(6, 3), normal(6, 3, seed=1)
    truth = (normalize(x) - normalize(y)).norm(dim=1).pow(alpha).mean()
    torch.testing.assert_close(AlignmentLoss(alpha)(x, y), truth)


@pytest.mark.parametrize("alpha", [1, 1.5, 2, 3])
def test_equal_views_give_zero_loss_and_gradient(alpha):
    x = normal(4, 3).requires_grad_()
    loss = AlignmentLoss(alpha)(x, x.detach())
    (grad,) = torch.autograd.grad(loss, x)
    assert loss.item() == 0
    assert torch.equal(grad, torch.zeros_like(grad))


def test_close_views_keep_precision():
    x = torch.tensor([[1.0, 0.0]])
    y = torch.tensor([[1.0, 1e-5]])  # 2 − 2cos would be 0 in fp32
    assert AlignmentLoss()(x, y).item() == pytest.approx(1e-10, rel=1e-3)


def test_invalid_arguments_raise():
    for alpha in (0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="^alpha "):
            AlignmentLoss(alpha)
    with pytest.raises(ValueError, match="^y "):
        AlignmentLoss()(torch.ones(2, 3), torch.ones(3, 3))
