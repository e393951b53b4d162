import pytest
import torch
from torch.nn.functional import normalize

from coulomb.losses import DebiasedLoss, HardNegativeLoss, NTXentLoss


def views(n, d, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(n, d, generator=generator, dtype=dtype).requires_grad_() for _ in range(2))


def test_beta_0_equals_the_debiased_loss_and_ntxent():
    x, y = views(7, 4)
    torch.testing.assert_close(HardNegativeLoss(beta=0)(x, y), DebiasedLoss()(x, y), rtol=0, atol=0)
    torch.testing.assert_close(HardNegativeLoss(0.3, beta=0, tau_plus=0)(x, y), NTXentLoss(0.3)(x, y))


def test_is_continuous_as_beta_approaches_0():
    x, y = views(7, 4)
    nearly = HardNegativeLoss(0.3, beta=1e-9)(x, y)
    torch.testing.assert_close(nearly, DebiasedLoss(0.3)(x, y), rtol=0, atol=1e-7)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_equals_the_authors_code(beta):
    x, y = views(6, 5)
    z = normalize(torch.cat([x, y]))
    others = ~torch.eye(6, dtype=torch.bool).repeat(2, 2)
    neg = (z @ z.T / 0.5).exp()[others].view(12, 10)
    pos = (normalize(x) * normalize(y)).sum(1).div(0.5).exp().repeat(2)
    importance = (beta * neg.log()).exp()
    reweighted = (importance * neg).sum(1) / importance.mean(1)
    negatives = ((-0.1 * 10 * pos + reweighted) / 0.9).clamp_min(10 * torch.tensor(-2.0).exp().item())
    truth = -(pos / (pos + negatives)).log().mean()
    torch.testing.assert_close(HardNegativeLoss(beta=beta)(x, y), truth, rtol=0, atol=1e-7)


def test_larger_beta_gives_hard_negatives_more_weight():
    # As β grows, R / M goes from the mean of e^s to its maximum.
    x, y = views(8, 4)
    losses = [HardNegativeLoss(beta=beta, tau_plus=0.0)(x, y).item() for beta in (0, 1, 4, 30)]
    assert losses == sorted(losses)
    z = normalize(torch.cat([x, y]))
    scores = z @ z.T / 0.5
    hardest = scores.masked_fill(torch.eye(8, dtype=torch.bool).repeat(2, 2), -torch.inf).amax(1)
    own = (normalize(x) * normalize(y)).sum(1).div(0.5).repeat(2)
    limit = torch.nn.functional.softplus(hardest + torch.tensor(14.0).log() - own).mean()
    nearly = HardNegativeLoss(beta=2000, tau_plus=0.0)(x, y).item()
    assert nearly == pytest.approx(limit.item(), abs=1e-2)


def test_no_overflow_where_the_authors_exponentials_overflow():
    x, y = views(8, 4, dtype=torch.float32)  # (1+β)/τ = 400
    loss = HardNegativeLoss(0.01, beta=3.0)(x, y)
    assert loss.item() == pytest.approx(HardNegativeLoss(0.01, beta=3.0)(x.double(), y.double()).item(), rel=1e-5)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, (x, y)))


def test_beta_can_be_changed_during_training():
    x, y = views(8, 4)
    loss = HardNegativeLoss(beta=2.0)
    loss.beta = 0.0
    torch.testing.assert_close(loss(x, y), DebiasedLoss()(x, y))


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="^beta .* -1$"):
        HardNegativeLoss(beta=-1)
    assert "temperature=0.5, beta=1, tau_plus=0.1" in repr(HardNegativeLoss())
