import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import DebiasedLoss, NTXentLoss


def views(n, d, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, d, generator=generator, dtype=dtype).requires_grad_() for _ in range(2))


def test_tau_plus_0_equals_ntxent():
    x, y = views(7, 4)
    torch.testing.assert_close(DebiasedLoss(0.2, 0.0)(x, y), NTXentLoss(0.2)(x, y), rtol=0, atol=1e-12)


def test_equals_the_authors_code():
    x, y = views(6, 5)
    z = normalize(torch.cat([x, y]))
    weights = (z @ z.T / 0.5).exp()
    included = 1 - torch.eye(6, dtype=torch.float64).repeat(2, 2)
    pos = (normalize(x) * normalize(y)).sum(1).div(0.5).exp().repeat(2)
    sums = (weights * included).sum(1)
    negatives = ((sums - 0.1 * 10 * pos) / 0.9).clamp_min(10 * math.exp(-2))
    truth = -(pos / (pos + negatives)).log().mean()
    torch.testing.assert_close(DebiasedLoss()(x, y), truth, rtol=0, atol=1e-12)


def test_negatives_get_no_gradient_at_the_bound_and_anchors_are_counted():
    # One pair has equal views and distant negatives, so the sum minus τ⁺M e^{s⁺} is negative.
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.1]], requires_grad=True)
    loss, diagnosis = DebiasedLoss(0.5, 0.5, reduction="none", diagnose=True)(x, x.detach())
    assert diagnosis.bounded == 4
    torch.testing.assert_close(loss, torch.full((4,), math.log1p(2 * math.exp(-4))))
    torch.testing.assert_close(diagnosis.positive, torch.ones(4))
    assert diagnosis.without_positive == 0
    (grad,) = torch.autograd.grad(loss.sum(), x)
    torch.testing.assert_close(
        grad, torch.zeros_like(grad), rtol=0, atol=1e-6
    )  # s⁺ is at its maximum, so it gives no gradient either


def test_diagnosis_counts_only_bounded_anchors():
    x, y = views(16, 8)
    _, diagnosis = DebiasedLoss(diagnose=True)(x, y)
    z = normalize(torch.cat([x, y])).detach()
    weights = (z @ z.T / 0.5).exp() * (1 - torch.eye(16, dtype=torch.float64).repeat(2, 2))
    pos = (z[:16] * z[16:]).sum(1).div(0.5).exp().repeat(2)
    expected = ((weights.sum(1) - 3 * pos) / 0.9 <= 30 * math.exp(-2)).sum()
    assert 0 <= int(expected) == int(diagnosis.bounded)
    assert DebiasedLoss(tau_plus=0.0, diagnose=True)(x, y)[1].bounded == 0


@pytest.mark.parametrize("tau", [0.005, 0.01, 0.09])
def test_no_overflow_at_a_low_temperature(tau):
    x, y = views(8, 4, dtype=torch.float32)
    loss = DebiasedLoss(tau)(x, y)
    grads = torch.autograd.grad(loss, (x, y))
    truth = DebiasedLoss(tau)(x.double(), y.double())
    assert loss.item() == pytest.approx(truth.item(), rel=1e-5)
    assert all(torch.isfinite(g).all() for g in grads)


def test_gradient_is_finite_if_the_corrected_sum_is_zero():
    # Σe^s = τ⁺M e^{s⁺} exactly: the logarithm of the difference is −∞, but the bound applies.
    x = torch.ones(3, 2, requires_grad=True)
    loss = DebiasedLoss(0.5, 0.999999)(x, x.detach())
    (grad,) = torch.autograd.grad(loss, x)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()


def test_a_single_sample_warns():
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.warns(CoulombWarning, match="2 of 2 anchors"):
        loss = DebiasedLoss()(x, torch.tensor([[2.0, 1.0]]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(x.grad, torch.zeros(1, 2))


def test_invalid_arguments_raise():
    x, y = views(4, 3)
    with pytest.raises(ValueError, match="^tau_plus .* 1$"):
        DebiasedLoss(tau_plus=1)
    with pytest.raises(ValueError, match="tau_plus"):
        DebiasedLoss(tau_plus=-0.1)
    with pytest.raises(TypeError, match="^tau_plus .* str$"):
        DebiasedLoss(tau_plus="0.1")
    with pytest.raises(ValueError, match="^view1 "):
        DebiasedLoss()(x, y[:3])
    with pytest.raises(ValueError, match="^view0 .*2"):
        DebiasedLoss()(torch.stack([x, y], 1), y)
