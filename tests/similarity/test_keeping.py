"""Exponentials that wait for the backward pass: the same gradients with and without, and as many as there is room for."""

import pytest
import torch

from coulomb.similarity import Similarity, problem, streaming
from coulomb.similarity.keeping import Keeping


def drawn(n, dim=4, seed=0):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def triangle(queries, keys):
    return Similarity(queries, scale=0.5, backend="streaming", tile=3).lse("others").sum()


def both(queries, keys):
    rows, columns = Similarity(queries, keys, scale=0.5, instances=len(queries), backend="streaming", tile=3).lse_both(
        "negatives"
    )
    return rows.sum() + 2 * columns.sum()


@pytest.fixture
def kept(monkeypatch):
    """How many tiles each forward pass kept."""
    seen = []
    real = Keeping.add

    def add(self, exponential):
        real(self, exponential)
        if len(seen) == 0 or seen[-1][0] is not self:
            seen.append((self, 0))
        seen[-1] = self, len(self.tiles)

    monkeypatch.setattr(Keeping, "add", add)
    monkeypatch.setattr(problem, "LEAST_KEPT", 0)
    return seen


@pytest.mark.parametrize("fold", [triangle, both])
def test_none_some_or_all(fold, kept, monkeypatch):
    found = []
    for room in (0, 40, 1000):  # elements of 8 bytes, for vectors of 4
        operands = 1 + (fold is both)
        monkeypatch.setattr(problem, "KEPT_BYTES", room * 8 // (4 * operands))
        queries, keys = drawn(11), drawn(11, seed=1)
        value = fold(queries, keys)
        first = torch.autograd.grad(value, queries, retain_graph=True)[0]
        assert torch.equal(torch.autograd.grad(value, queries)[0], first)  # what was kept is not used up
        found.append(first)
    counts = [count for _, count in kept]
    assert counts[0] == 0 < counts[1] < counts[2]
    assert sum(tile.numel() for tile in kept[1][0].tiles) <= 40
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_nothing_waits_where_no_gradient_is_asked_for(kept):
    with torch.no_grad():
        triangle(drawn(11), None)
    triangle(drawn(11).detach(), None)
    assert [count for _, count in kept] == [0, 0]


def test_too_little_room_is_not_used(monkeypatch):
    queries = drawn(100)
    one = problem.Problem(queries, None, 1.0, None, Similarity(queries).pairs("others"))
    monkeypatch.setattr(
        problem, "KEPT_BYTES", 8 * 100 * (100 + problem.LEAF) // 2 // 4 // 4
    )  # a quarter of the triangle
    assert one.room_to_keep > 0
    monkeypatch.setattr(problem, "KEPT_BYTES", problem.KEPT_BYTES - 8)
    assert one.room_to_keep == 0


def test_only_where_a_gradient_needs_the_sums_of_other_rows():
    queries, keys = drawn(6), drawn(6, seed=1)
    some = torch.ones(6, 6, dtype=torch.bool)
    assert Similarity(queries, keys, backend="streaming")._problem("all").room_to_keep == 0
    assert Similarity(queries, backend="streaming")._problem("others", powers=(1.0, 2.0)).room_to_keep == 0
    assert Similarity(queries, keys, backend="streaming")._problem(some, both=True).room_to_keep == 0
    assert Similarity(queries, keys, backend="streaming")._problem("all", both=True).room_to_keep > 0


def test_a_large_triangle_keeps_nothing():
    tall = torch.empty(65_536, 128, device="meta")
    one = problem.Problem(tall, None, 1.0, None, Similarity(torch.eye(2)).pairs("others"), exponent=1.0)
    assert one.triangular and one.room_to_keep == 0


def test_tiles_are_computed_once_where_they_are_kept(monkeypatch):
    computed = []
    real = streaming.Tiles.exponents
    monkeypatch.setattr(streaming.Tiles, "exponents", lambda *given: computed.append(1) or real(*given))
    queries = drawn(11)
    value = triangle(queries, None)
    before = len(computed)
    torch.autograd.grad(value, queries)
    assert len(computed) == before
