import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import InfoNCELoss

GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def test_equals_both_published_implementations():
    query, positive, queue = normal(5, 3), normal(5, 3), normal(11, 3)
    q, p, k = (normalize(x) for x in (query, positive, queue))
    logits = torch.cat([(q * p).sum(1, keepdim=True), q @ k.T], 1) / 0.07
    by_cross_entropy = cross_entropy(logits, torch.zeros(5, dtype=torch.long))
    by_ratio = -(logits[:, 0].exp() / logits.exp().sum(1)).log().mean()
    ours = InfoNCELoss(0.07)(query, positive, queue)
    torch.testing.assert_close(ours, by_cross_entropy, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours, by_ratio, rtol=0, atol=1e-12)


def test_in_batch_loss_equals_cross_entropy_on_the_diagonal():
    query, positive = normal(6, 3), normal(6, 3)
    logits = normalize(query) @ normalize(positive).T / 0.2
    here = cross_entropy(logits, torch.arange(6))
    there = cross_entropy(logits.T, torch.arange(6))
    torch.testing.assert_close(InfoNCELoss(0.2)(query, positive), here)
    torch.testing.assert_close(InfoNCELoss(0.2, symmetric=True)(query, positive), (here + there) / 2)


def test_equal_logits_with_a_queue_of_65536_give_ln_65537():
    one = torch.ones(1, 2)
    assert float(InfoNCELoss()(one, one, torch.ones(65536, 2))) == pytest.approx(11.0904, abs=1e-4)


def test_a_queue_without_requires_grad_gets_no_gradient():
    query = normal(4, 3).requires_grad_()
    queue = normal(9, 3)
    InfoNCELoss()(query, normal(4, 3), queue).backward()
    assert query.grad is not None
    assert queue.grad is None


def test_losses_near_zero_keep_precision():
    # Cosines 1 and −1 at τ = .05: L = log(1 + e^−40). LSE − s⁺ would be 0 in fp32.
    query = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = InfoNCELoss(0.05)(query, torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0]]))
    assert loss.item() == pytest.approx(math.exp(-40), rel=1e-4, abs=0)


@pytest.mark.parametrize("negatives", [None, torch.zeros(0, 2)])
def test_no_negatives_give_zero_and_a_warning(negatives):
    query = torch.tensor([[1.0, 2.0]], requires_grad=True)
    with pytest.warns(CoulombWarning, match="1 of 1 anchors"):
        loss = InfoNCELoss()(query, torch.tensor([[2.0, 1.0]]), negatives)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(query.grad, torch.zeros(1, 2))


def test_invalid_negatives_raise():
    pair = torch.ones(2, 3)
    with pytest.raises(ValueError, match="^negatives .*4"):
        InfoNCELoss()(pair, pair, torch.ones(5, 4))
    with pytest.raises(ValueError, match="negatives with symmetric=True"):
        InfoNCELoss(symmetric=True)(pair, pair, torch.ones(5, 3))


def test_negatives_with_the_querys_id_are_left_out():
    query, positive, queue = normal(4, 3).requires_grad_(), normal(4, 3), normal(6, 3)
    query_ids, ids = torch.tensor([0, 1, -1, 5]), torch.tensor([1, 0, 1, -1, 7, -1])
    loss = InfoNCELoss(0.3)(query, positive, queue, ids=query_ids, negative_ids=ids)
    included = (query_ids[:, None] != ids) | (ids < 0)
    logits = (normalize(query) @ normalize(queue).T / 0.3).masked_fill(~included, -torch.inf)
    own = (normalize(query) * normalize(positive)).sum(1, keepdim=True) / 0.3
    expected = cross_entropy(torch.cat([own, logits], 1), torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(loss, expected)
    (ours,), (theirs,) = (torch.autograd.grad(value, query, retain_graph=True) for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_a_query_whose_negatives_all_have_its_id_has_zero_loss():
    query = normal(2, 3).requires_grad_()
    same, other = torch.tensor([3, 4]), torch.tensor([3, 3])
    loss = InfoNCELoss(reduction="none")(query, normal(2, 3), normal(2, 3), ids=same, negative_ids=other)
    loss.sum().backward()
    assert float(loss[0].detach()) == 0 and torch.equal(query.grad[0], torch.zeros(3, dtype=torch.float64))
    assert float(loss[1].detach()) > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": torch.arange(2), "negatives": torch.ones(2, 3)}, "ids and negative_ids must be given together"),
        (
            {"negative_ids": torch.arange(2), "negatives": torch.ones(2, 3)},
            "ids and negative_ids must be given together",
        ),
        ({"ids": torch.arange(2), "negative_ids": torch.arange(2)}, "without negatives, ids alone"),
        ({"ids": torch.arange(3)}, r"^ids must have shape \[2\]"),
        ({"ids": torch.zeros(2, 0, dtype=torch.long)}, r"^ids must have shape \[2\]"),
        ({"ids": torch.tensor([[0, 1], [2, -2]])}, "^ids must be integers from 0, or −1 for unknown, got -2"),
        (
            {"ids": torch.zeros(2, 2).long(), "negatives": torch.ones(4, 3), "negative_ids": torch.arange(4)},
            r"equally many ids per row, got \[2, 2\], \[4\]",
        ),
    ],
)
def test_invalid_ids_raise(given, message):
    pair = torch.ones(2, 3)
    with pytest.raises(ValueError, match=message):
        InfoNCELoss()(pair, pair, **given)


def test_query_and_queue_may_differ_in_precision():
    pair, queue = normal(3, 4).bfloat16().requires_grad_(), normal(8, 4).float()
    loss = InfoNCELoss()(pair, pair.detach(), queue)
    loss.backward()
    assert loss.dtype == torch.float32
    assert pair.grad.dtype == torch.bfloat16


def test_diagnosis_against_a_queue_and_in_the_batch():
    query, positive, queue = normal(4, 3), normal(4, 3), normal(9, 3)
    q, p, k = (normalize(x) for x in (query, positive, queue))
    loss, diagnosis = InfoNCELoss(diagnose=True)(query, positive, queue)
    torch.testing.assert_close(loss, InfoNCELoss()(query, positive, queue))
    torch.testing.assert_close(diagnosis.positive, (q * p).sum(1))
    torch.testing.assert_close(diagnosis.hardest_negative, (q @ k.T).amax(1))
    _, diagnosis = InfoNCELoss(diagnose=True)(query, positive)
    torch.testing.assert_close(diagnosis.hardest_negative, (q @ p.T).fill_diagonal_(-2).amax(1))
    torch.testing.assert_close(diagnosis.positive, (q * p).sum(1))
