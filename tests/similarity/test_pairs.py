"""Sets of pairs, compared with a loop over all pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.similarity import Similarity, policy


def counts(over, i, j, query_ids, key_ids, lead):
    self_pair = lead and i == j
    same = any(one == other != -1 for one, other in zip(query_ids[i], key_ids[j], strict=True))
    return {
        "all": True,
        "others": not self_pair,
        "positives": same and not self_pair,
        "negatives": not same and not self_pair,
    }[over]


def rows_of_ids(width):
    return st.lists(st.lists(st.integers(-1, 3), min_size=width, max_size=width), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    ids=st.integers(1, 3).flatmap(lambda width: st.tuples(rows_of_ids(width), st.none() | rows_of_ids(width))),
    over=st.sampled_from(["all", "others", "positives", "negatives"]),
    cut=st.integers(0, 12),
    compared=st.booleans(),
)
def test_tiles_counts_and_sums_equal_the_loop(ids, over, cut, compared):
    query_ids, key_ids = ids
    lead = key_ids is None
    if over == "others" and not lead:
        return
    n, m = len(query_ids), len(query_ids if lead else key_ids)
    rows = torch.arange(1.0, 14.0)[:, None]
    S = Similarity(
        rows[:n],
        None if lead else rows[:m],
        query_ids=torch.tensor(query_ids),
        key_ids=None if lead else torch.tensor(key_ids),
    )
    truth = torch.tensor(
        [[counts(over, i, j, query_ids, query_ids if lead else key_ids, lead) for j in range(m)] for i in range(n)]
    )
    pairs = S.pairs(over)
    with policy.override(compared=2**16 if compared else 0):
        assert torch.equal(S.count(over), truth.sum(1))
        torch.testing.assert_close(S.sum(over), (S.matrix * truth).sum(1))
    for rows in (slice(0, min(cut, n)), slice(min(cut, n), n)):
        for cols in (slice(0, min(cut, m)), slice(min(cut, m), m)):
            hidden = pairs.hidden(rows, cols)
            expected = truth[rows, cols]
            assert torch.equal(torch.ones_like(expected) if hidden is None else ~hidden, expected)
            assert pairs.touches(rows, cols) or not expected.any()
            tile = pairs.hide_(torch.zeros(expected.shape), rows, cols)
            assert torch.equal(tile == 0, expected)


def test_sums_use_no_tiles():
    ids = torch.tensor([0, 1, 0, -1, -1])
    x = torch.arange(10.0).view(5, 2)
    S = Similarity(x, scale=2.0, query_ids=ids)
    truth = 2 * (x @ x.T)
    assert S.sum("positives").tolist() == [truth[0, 2], 0, truth[2, 0], 0, 0]
    torch.testing.assert_close(S.sum("negatives"), truth.sum(1) - truth.diagonal() - S.sum("positives"))
    torch.testing.assert_close(S.mean("others"), (truth.sum(1) - truth.diagonal()) / 4)


def test_counts_of_masks_equal_their_sums():
    mask = torch.tensor([[True, False], [True, True]])
    S = Similarity(torch.ones(2, 1), torch.ones(2, 1))
    assert S.count(mask).tolist() == [1, 2]
    assert S.count(mask * 0.5).tolist() == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("offset", [0, 2**24 - 3, 2**53 - 3, 2**62])
@pytest.mark.parametrize("over", ["positives", "negatives"])
@pytest.mark.parametrize("tile", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_ids_are_told_apart(offset, over, tile, dtype):
    ids = torch.tensor([0, 1, 2, 0, 3, 4, -1, 5])
    rows, ids = torch.eye(8, dtype=dtype), torch.where(ids >= 0, ids + offset, ids)
    S = Similarity(rows, query_ids=ids, backend="auto" if tile is None else "streaming", tile=tile)
    same = (ids[:, None] == ids) & (ids >= 0)
    expected = (same if over == "positives" else ~same) & ~torch.eye(8, dtype=torch.bool)
    torch.testing.assert_close(S.lse(over), expected.sum(1).to(dtype).log())


def test_queries_and_keys_need_equally_many_ids():
    x, ids = torch.eye(3), torch.zeros(3, 2).long()
    with pytest.raises(ValueError, match=r"equally many ids per row, got shapes \(\(3, 2\), \(3,\)\)"):
        Similarity(x, x, query_ids=ids, key_ids=ids[:, 0])
    with pytest.raises(ValueError, match=r"query_ids must have shape \[3\] or \[3, C\]"):
        Similarity(x, query_ids=ids[:2])
    torch.testing.assert_close(Similarity(x, query_ids=ids[:, :1]).lse("positives"), torch.zeros(3).add(2).log())
