"""CLIP and SigLIP on several columns: which rows repel, which columns are contrasted."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

from coulomb.methods import CLIP, PairSigLIP
from coulomb.methods.options import build_pair_method
from coulomb.models import Tower, Towers, ViewRows


class Scale(nn.Module):
    """An encoder of vectors that multiplies by a matrix."""

    def __init__(self, seed, width=6):
        super().__init__()
        self.linear = nn.Linear(5, width, bias=False, dtype=torch.float64)
        nn.init.normal_(self.linear.weight, generator=torch.Generator().manual_seed(seed))
        self.feature_dim, self.column = width, "x"

    def forward(self, cells):
        return self.linear(cells)


def towers(*columns):
    return Towers({name: Tower(Scale(place), head_layers=0) for place, name in enumerate(columns)})


def rows(n, *columns):
    draw = torch.Generator().manual_seed(n)
    return ViewRows({name: torch.randn(n, 5, generator=draw, dtype=torch.float64) for name in columns}, n)


def dense(first, second, ids, tau):
    """Both directions of InfoNCE where pairs with an equal id are left out, from the whole matrix."""
    logits = normalize(first, dim=1) @ normalize(second, dim=1).T / tau
    same = (ids[:, None] == ids[None]).any(2) & ~torch.eye(len(ids), dtype=torch.bool)
    logits = logits.masked_fill(same, -torch.inf)
    target = torch.arange(len(ids))
    return (cross_entropy(logits, target) + cross_entropy(logits.T, target)) / 2


IDS = torch.tensor([[0, 10], [1, 11], [0, 12], [3, 11], [4, 14], [5, 15], [6, 16]])


def test_rows_that_share_a_cell_do_not_repel():
    method, batch = CLIP(towers("a", "b"), IDS, temperature=0.3), rows(5, "a", "b")
    train_row = torch.tensor([6, 0, 2, 3, 1])
    embeddings = method.towers(batch)
    expected = dense(embeddings["a"], embeddings["b"], IDS[train_row], 0.3)
    torch.testing.assert_close(method(batch, None, train_row), expected, rtol=1e-7, atol=1e-7)
    plain = CLIP(towers("a", "b"), IDS, temperature=0.3, same_cells="negative")
    unrelated = torch.arange(5)[:, None].repeat(1, 2)
    expected = dense(embeddings["a"], embeddings["b"], unrelated, 0.3)
    torch.testing.assert_close(plain(batch, None, train_row), expected, rtol=1e-7, atol=1e-7)


def test_the_first_column_is_contrasted_with_each_other_column():
    ids = torch.cat([IDS, IDS[:, 1:] + 100], dim=1)
    method, batch, train_row = (
        CLIP(towers("a", "b", "c"), ids, temperature=0.2),
        rows(7, "a", "b", "c"),
        torch.arange(7),
    )
    found = method.towers(batch)
    parts = [dense(found["a"], found[name], ids[:, [0, place]], 0.2) for place, name in ((1, "b"), (2, "c"))]
    torch.testing.assert_close(method(batch, None, train_row), sum(parts) / 2, rtol=1e-7, atol=1e-7)


def test_hard_negatives_are_keys_of_the_first_column_unless_they_equal_the_row_own_cell():
    ids = torch.tensor([[0, 10, 20], [1, 11, 10], [2, 12, 22]])  # the second row's negative is the first row's positive
    method, batch = CLIP(towers("a", "b", "n"), ids, ("n",), temperature=0.5), rows(3, "a", "b", "n")
    found = {name: normalize(each, dim=1) for name, each in method.towers(batch).items()}
    there = torch.cat([found["a"] @ found["b"].T, found["a"] @ found["n"].T], dim=1) / 0.5
    there[0, 4] = -torch.inf
    back = found["b"] @ found["a"].T / 0.5
    target = torch.arange(3)
    expected = (cross_entropy(there, target) + cross_entropy(back, target)) / 2
    torch.testing.assert_close(method(batch, None, target), expected, rtol=1e-7, atol=1e-7)


def test_columns_may_share_a_tower():
    tower = Tower(Scale(0), head_layers=0)
    both = Towers({"a.b": tower, "b": tower, "c": Tower(Scale(1), head_layers=0)})
    assert both["a.b"] is both["b"] and list(both.distinct()) == ["a.b", "c"]
    assert both.names == {"a.b": "a.b", "b": "a.b", "c": "c"}
    assert len(list(both.parameters())) == 2


def test_siglip_leaves_out_rows_that_share_a_cell():
    method, batch, train_row = PairSigLIP(towers("a", "b"), IDS), rows(7, "a", "b"), torch.arange(7)
    found = {name: normalize(each, dim=1) for name, each in method.towers(batch).items()}
    logits = 10 * found["a"] @ found["b"].T - 10
    eye = torch.eye(7, dtype=torch.bool)
    same = (IDS[:, None] == IDS[None]).any(2) & ~eye
    terms = -logsigmoid(torch.where(eye, logits, -logits)).masked_fill(same, 0)
    torch.testing.assert_close(method(batch, None, train_row), terms.sum(1).mean(), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="siglip"):
        PairSigLIP(towers("a", "b"), IDS, ("b",))


def test_figures_and_the_loss_without_signal():
    method = CLIP(towers("a", "b"), IDS, temperature=0.07)
    assert method.figures() == {"temperature": pytest.approx(0.07)}
    assert method.no_signal(8, 1) == pytest.approx(math.log(8))
    assert PairSigLIP(towers("a", "b"), IDS).figures() == {"temperature": pytest.approx(0.1), "bias": -10.0}
    with pytest.raises(ValueError, match="same_cells"):
        CLIP(towers("a", "b"), IDS, same_cells="positive")
    built = build_pair_method(
        "clip", CLIP, towers("a", "b"), cell_ids=IDS, negatives=(), shared={"temperature": 0.3, "seed": 1}, own={}
    )
    assert built.figures()["temperature"] == pytest.approx(0.3)


def dense_with_queue(embeddings, keys, ids, key_ids, tau):
    """Both directions of InfoNCE over the batch and the keys of past batches, from the whole matrices."""
    parts = []
    for first, second in (("a", "b"), ("b", "a")):
        queries = normalize(embeddings[first], dim=1)
        all_keys = torch.cat([normalize(embeddings[second], dim=1), keys[second]])
        logits = queries @ all_keys.T / tau
        known = torch.cat([ids, key_ids])
        same = (ids[:, None] == known[None]).any(2)
        same[torch.arange(len(ids)), torch.arange(len(ids))] = False
        parts.append(cross_entropy(logits.masked_fill(same, -torch.inf), torch.arange(len(ids))))
    return sum(parts) / 2


def test_keys_of_past_batches_are_negatives_in_both_directions_unless_they_share_a_cell():
    method = CLIP(towers("a", "b"), IDS, temperature=0.3, queue_size=5, momentum=0.9).double()
    plain = CLIP(towers("a", "b"), IDS, temperature=0.3).double()
    optimizer = torch.optim.SGD(method.parameters(), lr=0.5)
    start = {name: part.clone() for name, part in method.towers.named_parameters()}
    draw = torch.Generator().manual_seed(0)
    kept, kept_ids = {"a": torch.empty(0, 6, dtype=torch.float64), "b": torch.empty(0, 6, dtype=torch.float64)}, IDS[:0]
    for step in range(4):
        batch, train_row = rows(4, "a", "b"), torch.randperm(7, generator=draw)[:4]
        with torch.no_grad():
            expected = dense_with_queue(
                method.towers(batch), kept, IDS[train_row], kept_ids, float(method.figures()["temperature"])
            )
            momentum = method.momentum_towers(batch)
        loss = method(batch, None, train_row)
        torch.testing.assert_close(loss.detach(), expected, rtol=1e-6, atol=1e-6)
        if step == 0:
            torch.testing.assert_close(loss, plain(batch, None, train_row), rtol=1e-7, atol=1e-7)
        optimizer.zero_grad()
        loss.backward()
        method.after_batch()
        optimizer.step()
        method.after_update(0.0)
        kept = {name: torch.cat([kept[name], normalize(momentum[name], dim=1)])[-5:] for name in kept}
        kept_ids = torch.cat([kept_ids, IDS[train_row]])[-5:]
    assert method.figures()["queue_keys"] == 5 and method.no_signal(4, 1) == pytest.approx(math.log(9))
    for name, now in method.towers.named_parameters():
        slow = dict(method.momentum_towers.module.named_parameters())[name]
        assert 0 < (slow - start[name]).norm() < (now - start[name]).norm()
    assert all(not part.requires_grad for part in method.momentum_towers.parameters())


def test_a_queue_without_ids_and_with_hard_negatives():
    ids = torch.tensor([[0, 10, 20], [1, 11, 10], [2, 12, 22]])
    batch, train_row = rows(3, "a", "b", "n"), torch.arange(3)
    for same_cells in ("left_out", "negative"):
        method = CLIP(towers("a", "b", "n"), ids, ("n",), temperature=0.5, queue_size=3, same_cells=same_cells).double()
        for _ in range(2):
            loss = method(batch, None, train_row)
            method.after_batch()
        found = {name: normalize(each, dim=1) for name, each in method.towers(batch).items()}
        there = (
            torch.cat([found["a"] @ found["b"].T, found["a"] @ found["n"].T, found["a"] @ found["b"].T], dim=1) / 0.5
        )
        back = torch.cat([found["b"] @ found["a"].T, found["b"] @ found["a"].T], dim=1) / 0.5
        if same_cells == "left_out":  # each row's own cells are in the queue, too
            there[0, 4] = -torch.inf
            there[:, 6:].fill_diagonal_(-torch.inf)
            back[:, 3:].fill_diagonal_(-torch.inf)
        expected = (cross_entropy(there, train_row) + cross_entropy(back, train_row)) / 2
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    assert set(method.momentum_towers.module.columns) == {"a", "b"}
    with pytest.raises(ValueError, match="queue_size=-1"):
        CLIP(towers("a", "b"), IDS, queue_size=-1)


def test_each_column_but_the_first_has_its_queue():
    ids = torch.cat([IDS, IDS[:, 1:] + 100], dim=1)
    method, batch = CLIP(towers("a", "b", "c"), ids, queue_size=4).double(), rows(7, "a", "b", "c")
    method(batch, None, torch.arange(7))
    method.after_batch()
    second, third = method.pair_queues
    assert second.other.labels().tolist() == ids[3:, 0].tolist() and second.other.ids().tolist() == ids[3:, 1].tolist()
    assert third.first.ids().tolist() == ids[3:, 2].tolist()
    again = CLIP(towers("a", "b", "c"), ids, queue_size=4).double()
    again.load_state_dict(method.state_dict())
    assert torch.equal(again.pair_queues[1].other.keys(), third.other.keys())
    assert bool(again(batch, None, torch.arange(7)).isfinite())


def test_matryoshka_is_the_mean_over_prefixes():
    batch, train_row = rows(7, "a", "b"), torch.arange(7)
    method = CLIP(towers("a", "b"), IDS, temperature=0.3, matryoshka="2,4")
    found = method.towers(batch)
    parts = [dense(found["a"][:, :dim], found["b"][:, :dim], IDS, 0.3) for dim in (2, 4, 6)]
    torch.testing.assert_close(method(batch, None, train_row), sum(parts) / 3, rtol=1e-7, atol=1e-7)
    assert method.figures() == {"temperature": pytest.approx(0.3)}
    same = [torch.ones(7, 6)] * 2
    assert float(method.criterion(*same).detach()) == pytest.approx(method.no_signal(7, 1))
    for wrong in ("2,9", "0", "a", "2;4"):
        with pytest.raises(ValueError, match=f"matryoshka='{wrong}'"):
            CLIP(towers("a", "b"), IDS, matryoshka=wrong)
    assert list(CLIP(towers("a", "b"), IDS, matryoshka=3).criterion.dims) == [3, 6]
