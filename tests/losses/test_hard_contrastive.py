import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground import machine
from coulomb.ground.errors import CoulombWarning
from coulomb.losses import HardContrastiveLoss, InfoNCELoss
from coulomb.similarity import policy


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("k", [1, 3, 19])
@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "stored"])
def test_sums_over_the_nearest_keys_of_a_queue(k, elements):
    with policy.override(stored=elements):
        query, positive, queue = normal(5, 3), normal(5, 3, seed=1), normal(20, 3, seed=2)
        own = (normalize(query) * normalize(positive)).sum(1, keepdim=True)
        best = (normalize(query) @ normalize(queue).T).topk(k).values
        truth = -torch.cat([own, best], 1).div(0.1).log_softmax(1)[:, 0]
        torch.testing.assert_close(HardContrastiveLoss(0.1, k, reduction="none")(query, positive, queue), truth)


def test_top_k_of_all_negatives_equals_infonce():
    query, positive = normal(6, 3), normal(6, 3, seed=1)
    for k in (5, 6, 4095):
        torch.testing.assert_close(HardContrastiveLoss(0.2, k)(query, positive), InfoNCELoss(0.2)(query, positive))


def test_negatives_outside_the_top_k_get_no_gradient():
    queue = torch.tensor([[1.0, 0.5], [-1.0, 0.2], [0.5, 1.0]], requires_grad=True)
    one = torch.tensor([[1.0, 0.0]])
    HardContrastiveLoss(0.5, top_k=2)(one, one, queue).backward()
    assert (queue.grad[1] == 0).all()
    assert (queue.grad[[0, 2]] != 0).any(1).all()


def test_approaches_the_hinge_of_the_hardest_negative_at_a_low_temperature():
    # τ·L → max(s_max − s⁺, 0), up to τ log N.
    query, positive, queue = normal(5, 3), normal(5, 3, seed=1), normal(20, 3, seed=2)
    own = (normalize(query) * normalize(positive)).sum(1)
    hinge = ((normalize(query) @ normalize(queue).T).amax(1) - own).clamp_min(0)
    tau = 1e-3
    loss = HardContrastiveLoss(tau, top_k=4, reduction="none")(query, positive, queue)
    assert (tau * loss - hinge).abs().max() <= tau * math.log(5)


def test_diagnosis_covers_all_negatives():
    query, positive, queue = normal(5, 3), normal(5, 3, seed=1), normal(20, 3, seed=2)
    _, diagnosis = HardContrastiveLoss(0.5, top_k=2, diagnose=True)(query, positive, queue)
    p = (normalize(query) @ normalize(queue).T / 0.5).softmax(1)
    torch.testing.assert_close(diagnosis.effective_negatives, (-(p * p.log()).sum(1)).exp())


@pytest.mark.parametrize("negatives", [None, torch.zeros(0, 2)])
def test_no_negatives_give_zero_and_a_warning(negatives):
    query = torch.tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.warns(CoulombWarning, match="1 of 1 anchors"):
        loss = HardContrastiveLoss()(query, torch.tensor([[2.0, 1.0]]), negatives)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(query.grad, torch.zeros(1, 2))


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="^top_k .* -3$"):
        HardContrastiveLoss(top_k=-3)
    assert "top_k=4095" in repr(HardContrastiveLoss())


def test_half_precision_selects_the_same_negatives(monkeypatch):
    monkeypatch.setattr(machine, "FAST_BFLOAT16", True)
    query, positive = (normal(60, 8, seed=seed).bfloat16() for seed in (1, 2))
    loss = HardContrastiveLoss(0.5, 3, reduction="none")
    with policy.override(stored=0, half_rows=1):
        torch.testing.assert_close(loss(query, positive), loss(query.float(), positive.float()), rtol=1e-5, atol=1e-5)
