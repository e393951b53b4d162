import math

import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import HardSimpleLoss, InfoNCELoss, SimpleContrastiveLoss
from coulomb.similarity import Similarity, policy


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equals_the_sums_of_the_matrix():
    query, positive = normal(6, 3), normal(6, 3, seed=1)
    s = normalize(query) @ normalize(positive).T
    truth = -s.diagonal() + 0.3 * (s.sum(1) - s.diagonal())
    torch.testing.assert_close(SimpleContrastiveLoss(0.3, reduction="none")(query, positive), truth)


def test_the_matrix_is_not_computed(monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("tiles were asked for")

    monkeypatch.setattr(Similarity, "_reduce", forbidden)
    SimpleContrastiveLoss()(normal(6, 3), normal(6, 3), normal(9, 3))


def test_is_the_high_temperature_limit_of_infonce():
    # L = log(N) − (s⁺ − mean s)/τ + …, so τ·∇L → the gradient of −s⁺ + the mean over all N, including the positive.
    query, positive = normal(5, 3).requires_grad_(), normal(5, 3, seed=1)
    tau = 1e4
    (infonce,) = torch.autograd.grad(InfoNCELoss(tau)(query, positive) * tau, query)
    (simple,) = torch.autograd.grad(SimpleContrastiveLoss(1 / 4)(query, positive) * (4 / 5), query)
    torch.testing.assert_close(infonce, simple, rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "stored"])
def test_hard_simple_sums_over_the_nearest_negatives(k, elements):
    with policy.override(stored=elements):
        query, positive, queue = normal(5, 3), normal(5, 3, seed=1), normal(20, 3, seed=2)
        s = normalize(query) @ normalize(queue).T
        own = (normalize(query) * normalize(positive)).sum(1)
        truth = s.topk(k).values.sum(1) - own
        torch.testing.assert_close(HardSimpleLoss(top_k=k, reduction="none")(query, positive, queue), truth)


def test_top_k_above_the_number_of_negatives_uses_all():
    query, positive = normal(5, 3), normal(5, 3, seed=1)
    torch.testing.assert_close(HardSimpleLoss()(query, positive), SimpleContrastiveLoss()(query, positive))


def test_diagnosis_covers_all_negatives():
    query, positive, queue = normal(5, 3), normal(5, 3, seed=1), normal(20, 3, seed=2)
    loss, diagnosis = SimpleContrastiveLoss(diagnose=True)(query, positive, queue)
    torch.testing.assert_close(loss, SimpleContrastiveLoss()(query, positive, queue))
    s = normalize(query) @ normalize(queue).T
    torch.testing.assert_close(diagnosis.hardest_negative, s.amax(1))
    torch.testing.assert_close(diagnosis.positive, (normalize(query) * normalize(positive)).sum(1))
    p = s.softmax(1)
    torch.testing.assert_close(diagnosis.effective_negatives, (-(p * p.log()).sum(1)).exp())


@pytest.mark.parametrize("negatives", [None, torch.zeros(0, 2)])
@pytest.mark.parametrize("loss", [SimpleContrastiveLoss(), HardSimpleLoss()])
def test_no_negatives_leave_the_positive_and_warn(loss, negatives):
    query = torch.tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.warns(CoulombWarning, match="1 of 1 anchors"):
        value = loss(query, torch.tensor([[2.0, 1.0]]), negatives)
    assert value.item() == pytest.approx(-0.8)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="^weight .* nan$"):
        SimpleContrastiveLoss(math.nan)
    with pytest.raises(ValueError, match="^top_k .* 0$"):
        HardSimpleLoss(top_k=0)
    with pytest.raises(TypeError, match="^top_k .* 1.5$"):
        HardSimpleLoss(top_k=1.5)
