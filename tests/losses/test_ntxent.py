import math

import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import NTXentLoss, SupConLoss
from coulomb.similarity import policy


def views(n, d, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, d, generator=generator, dtype=dtype) for _ in range(2))


def test_two_views_may_be_one_tensor():
    x, y = views(5, 3)
    torch.testing.assert_close(NTXentLoss()(torch.stack([x, y], 1)), NTXentLoss()(x, y))


def test_constant_embeddings_give_ln_2n_minus_1():
    assert float(NTXentLoss()(torch.ones(128, 4), torch.ones(128, 4))) == pytest.approx(math.log(255), abs=1e-6)


def test_losses_near_zero_keep_precision():
    # s⁺ = 20, the other similarities −20: L = log(1 + 2e^−40) is far below the rounding error of 20 in fp32.
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    loss = NTXentLoss(0.05)(x, x.detach().clone())
    assert loss.item() == pytest.approx(2 * math.exp(-40), rel=1e-4, abs=0)


@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "dense"])
def test_low_cosines_at_a_low_temperature_are_accurate(elements):
    # Three vectors 120° apart: all cosines are −1/2 except those of positives. With a fixed bound of 1/τ, exp would underflow.
    with policy.override(stored=elements):
        angles = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64) * (2 * math.pi / 3)
        x = torch.stack([angles.cos(), angles.sin()], 1).float()
        y = -x.roll(1, 0)
        truth = NTXentLoss(0.01)(x.double(), y.double())
        assert float(NTXentLoss(0.01)(x, y)) == pytest.approx(float(truth), abs=2e-5)


@pytest.mark.parametrize("v", [2, 3])
def test_equals_supcon_without_labels(v):
    features = torch.randn(6, v, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(NTXentLoss(0.3)(features), SupConLoss(0.3)(features), rtol=0, atol=1e-12)


def test_a_single_sample_warns():
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.warns(CoulombWarning, match="2 of 2 anchors"):
        loss = NTXentLoss()(x, torch.tensor([[2.0, 1.0]]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(x.grad, torch.zeros(1, 2))


def test_unreduced_losses_are_view_0_then_view_1():
    x, y = views(4, 3)
    each = NTXentLoss(reduction="none")(x, y)
    assert each.shape == (8,)
    torch.testing.assert_close(NTXentLoss(reduction="none")(y, x), torch.cat([each[4:], each[:4]]))


def test_invalid_arguments_raise():
    x, y = views(4, 3)
    with pytest.raises(ValueError, match="^view1 "):
        NTXentLoss()(x, y[:3])
    with pytest.raises(ValueError, match="at least 2 views"):
        NTXentLoss()(x[:, None])
    with pytest.raises(ValueError, match="^view0 .*3"):
        NTXentLoss()(x)


def test_normalize_false_uses_dot_products():
    x, y = views(4, 3)
    z = torch.cat([x, y])
    scores = (z @ z.T / 2).fill_diagonal_(-torch.inf)
    truth = torch.nn.functional.cross_entropy(scores, torch.arange(8).roll(4))
    torch.testing.assert_close(NTXentLoss(2.0, normalize=False)(x, y), truth)


@pytest.mark.parametrize("v", [2, 3])
def test_diagnosis_covers_the_batch(v):
    features = torch.randn(5, v, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    loss, diagnosis = NTXentLoss(0.3, diagnose=True)(features)
    torch.testing.assert_close(loss, NTXentLoss(0.3)(features))
    z = torch.nn.functional.normalize(torch.cat(features.unbind(1)), dim=1)
    cosines, instance = z @ z.T, torch.arange(5).repeat(v)
    negative = instance[:, None] != instance
    torch.testing.assert_close(diagnosis.hardest_negative, cosines.masked_fill(~negative, -2).amax(1))
    own = ~negative & ~torch.eye(5 * v, dtype=torch.bool)
    torch.testing.assert_close(diagnosis.positive, (cosines * own).sum(1) / (v - 1))
    share = (cosines / 0.3).masked_fill(~negative, -torch.inf).softmax(1)
    torch.testing.assert_close(diagnosis.effective_negatives, torch.special.entr(share).sum(1).exp())
    assert diagnosis.without_positive == 0
