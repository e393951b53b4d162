"""Cached exponentials: gradients do not depend on the cache, whose size the policy limits."""

import pytest
import torch

from coulomb.similarity import Similarity, plan, policy, streaming
from coulomb.similarity.tiles import Problem


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
def cached(monkeypatch):
    """The tiles that each forward pass cached."""
    seen = []
    real = streaming.forward

    def forward(*given, **options):
        reduced = real(*given, **options)
        seen.append(list(reduced.cache.values()))
        return reduced

    monkeypatch.setattr(streaming, "forward", forward)
    return seen


@pytest.mark.parametrize("reduce", [triangle, both])
def test_gradients_are_equal_for_no_some_or_all_tiles_cached(reduce, cached):
    grads = []
    for room in (0, 40, 1000):  # elements of 8 bytes, for rows of 4 elements
        queries, keys = drawn(11), drawn(11, seed=1)
        with policy.override(cached=room * 8 // (4 * (1 + (reduce is both))), least_cached=0):
            value = reduce(queries, keys)
        first = torch.autograd.grad(value, queries, retain_graph=True)[0]
        assert torch.equal(torch.autograd.grad(value, queries)[0], first)  # a cached tile may be used again
        grads.append(first)
    counts = [len(tiles) for tiles in cached]
    assert counts[0] == 0 < counts[1] < counts[2]
    assert sum(tile.numel() for tile in cached[1]) <= 40
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


def test_nothing_is_cached_without_gradients(cached):
    with torch.no_grad():
        triangle(drawn(11), None)
    triangle(drawn(11).detach(), None)
    assert cached == [[], []]


def planned(similarity, over, **options):
    problem = similarity._problem(over, **options)
    return plan.decide(problem, plan.learning(problem))


def test_a_cache_that_is_too_small_is_not_used():
    similarity = Similarity(drawn(100), backend="streaming")
    quarter = 8 * 100 * (100 + policy.LEAF) // 2 // 4 // 4  # of the triangle
    with policy.override(cached=quarter):
        assert planned(similarity, "others").cached > 0
    with policy.override(cached=quarter - 8):
        assert planned(similarity, "others").cached == 0


def test_tiles_are_cached_only_if_a_gradient_needs_the_sums_of_other_rows():
    of_itself = Similarity(drawn(6), backend="streaming")
    of_keys = Similarity(drawn(6), drawn(6, seed=1), backend="streaming")
    some = torch.ones(6, 6, dtype=torch.bool)
    assert planned(of_keys, "all").cached == 0
    assert planned(of_itself, "others", powers=(1.0, 2.0)).cached == 0
    assert planned(of_keys, some, both=True).cached == 0
    assert planned(of_keys, "all", both=True).cached > 0


def test_a_large_triangle_is_not_cached():
    tall = torch.empty(65_536, 128, device="meta")
    one = Problem(tall, None, 1.0, None, Similarity(torch.eye(2)).pairs("others"), exponent=1.0)
    assert plan.triangular(one) and plan.cached_elements(one, True) == 0


def test_cached_tiles_are_computed_once(monkeypatch):
    computed = []
    real = streaming.Tiles.exponents
    monkeypatch.setattr(streaming.Tiles, "exponents", lambda *given, **kept: computed.append(1) or real(*given, **kept))
    queries = drawn(11)
    value = triangle(queries, None)
    before = len(computed)
    torch.autograd.grad(value, queries)
    assert len(computed) == before
