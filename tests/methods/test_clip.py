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
