import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import InfoNCELoss, JointInfoNCELoss
from coulomb.similarity import use_backend

BOTH = ("query_to_doc", "doc_to_query")


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def close(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_one_direction_is_infonce_with_in_batch_negatives():
    query, positive, negatives = rows(6, 4), rows(6, 4, seed=1), rows(6, 2, 4, seed=2)
    joint = JointInfoNCELoss(0.2, directions=["query_to_doc"])
    close(joint(query, positive), InfoNCELoss(0.2)(query, positive))
    close(joint(query, positive, negatives), InfoNCELoss(0.2, in_batch=True)(query, positive, negatives.flatten(0, 1)))
    close(joint(query, positive, negatives[:, :0]), joint(query, positive))


def test_both_directions_apart_are_symmetric_infonce():
    query, positive = rows(6, 4), rows(6, 4, seed=1)
    joint = JointInfoNCELoss(0.2, directions=BOTH, partition_mode="per_direction")
    close(joint(query, positive), InfoNCELoss(0.2, symmetric=True)(query, positive))


def test_the_order_of_directions_does_not_matter():
    assert JointInfoNCELoss(directions=["doc_to_query", "query_to_doc", "doc_to_query"]).directions == BOTH


def test_hardness_without_strength_or_without_such_negatives_changes_nothing():
    query, positive, negatives = rows(6, 4), rows(6, 4, seed=1), rows(6, 2, 4, seed=2)
    plain = JointInfoNCELoss(0.2)
    for mode in ("in_batch_negatives", "hard_negatives", "all_negatives"):
        close(JointInfoNCELoss(0.2, hardness_mode=mode)(query, positive, negatives), plain(query, positive, negatives))
    without = JointInfoNCELoss(0.2, hardness_mode="hard_negatives", hardness_strength=5.0)
    close(without(query, positive), plain(query, positive))


@pytest.mark.parametrize("mode", ["in_batch_negatives", "hard_negatives", "all_negatives"])
def test_hardness_raises_the_weight_of_similar_negatives(mode):
    query, positive = rows(6, 4), rows(6, 4, seed=1)
    near = (query + 0.5 * rows(6, 4, seed=2)).detach()[:, None].requires_grad_()
    loss = JointInfoNCELoss(0.5, directions=["query_to_doc"], hardness_mode=mode, hardness_strength=6.0)
    (raised,) = torch.autograd.grad(loss(query, positive, near), near)
    (plain,) = torch.autograd.grad(JointInfoNCELoss(0.5, directions=["query_to_doc"])(query, positive, near), near)
    if mode != "in_batch_negatives":  # its own hard negatives are raised
        assert raised.norm() > plain.norm()
    with use_backend("streaming"):
        close(torch.autograd.grad(loss(query, positive, near), near)[0], raised)


def test_a_softmax_without_the_positive_is_refused():
    loss = JointInfoNCELoss(partition_mode="per_direction")
    with pytest.raises(ValueError, match="^directions with partition_mode='per_direction': 'doc_to_doc' .*'joint'"):
        loss(rows(3, 4), rows(3, 4, seed=1))


def test_negatives_need_one_row_per_query():
    with pytest.raises(ValueError, match=r"^negatives must have shape \[3, K, D\], got \(2, 1, 4\)"):
        JointInfoNCELoss()(rows(3, 4), rows(3, 4), rows(2, 1, 4))


def test_a_single_pair_warns():
    query, positive = rows(1, 4), rows(1, 4, seed=1)
    for directions, value in ((["query_to_doc"], 0.0), (BOTH, 2.0)):
        with pytest.warns(CoulombWarning, match="1 of 1 anchors have no negative"):
            loss = JointInfoNCELoss(directions=directions)(query, positive)
        close(loss.exp() - 1 if value else loss, torch.tensor(value and value - 1, dtype=torch.float64))
    JointInfoNCELoss()(query, positive, rows(1, 2, 4, seed=2))  # these are negatives
