"""`Similarity.cross_entropy`: strips whose gradients are computed in the forward pass, beside the stored matrices."""

import pytest
import torch

from coulomb.similarity import Similarity, policy
from coulomb.similarity import cross_entropy as module


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def passes(monkeypatch):
    """One entry for each pass over the strips."""
    calls, strips = [], module._strips
    monkeypatch.setattr(module, "_strips", lambda *given: calls.append(1) or strips(*given))
    return calls


def problem(n, m, over, magnitude=1.0, frozen=False):
    """(cross-entropy as a function of a backend and options, leaves)"""
    queries, scale = normal(n, 5).requires_grad_(), torch.tensor(magnitude, dtype=torch.float64, requires_grad=True)
    keys = None if m is None else normal(m, 5, seed=1).requires_grad_(not frozen)
    taught = normal(n, 3, seed=2), None if m is None else normal(m, 3, seed=3)
    own = (normal(n, seed=4).requires_grad_(), normal(n, seed=5)) if m == 13 else None
    ids = {"query_ids": torch.arange(n) % 3} if over == "negatives" else {}

    def value(backend="streaming", kl=False, tile=None):
        S = Similarity(queries, keys, scale=scale, backend=backend, tile=tile, **ids)
        return S.cross_entropy(Similarity(*taught, scale=2.0, backend=backend, **ids), over, own=own, kl=kl)

    leaves = [queries, scale, *([keys] if m and not frozen else []), *(own[:1] if own else [])]
    return value, leaves


CASES = [
    (9, None, "others"),
    (12, None, "negatives"),
    (10, 13, "all"),
    (21, 6, "all"),
    (1, None, "others"),
    (1, 4, "all"),
]


@pytest.mark.parametrize(("n", "m", "over"), CASES)
@pytest.mark.parametrize("kl", [False, True])
@pytest.mark.parametrize("magnitude", [1.0, 900.0])
@pytest.mark.parametrize("upstream", ["equal", "different"])
@pytest.mark.parametrize("tile", [2, None])
@pytest.mark.parametrize("rows", [4, 12, 400])
def test_equals_the_stored_matrices(n, m, over, kl, magnitude, upstream, tile, rows, passes):
    value, leaves = problem(n, m, over, magnitude)
    weights = torch.full((n,), 0.7).double() if upstream == "equal" else torch.linspace(-1, 2, n, dtype=torch.float64)
    with policy.override(strip=rows * (m or n), strip_rows=1, tile=tile):
        ours = value(kl=kl)
        mine = torch.autograd.grad((ours * weights).sum(), leaves)
    truth = value("dense", kl)
    torch.testing.assert_close(ours, truth, rtol=1e-12, atol=1e-10)
    for one, its in zip(mine, torch.autograd.grad((truth * weights).sum(), leaves), strict=True):
        torch.testing.assert_close(one, its, rtol=1e-10, atol=1e-10 * magnitude)
    assert len(passes) == 1 + (upstream == "different" and n > 1)


def test_backward_can_run_twice_and_keys_may_be_frozen():
    value, leaves = problem(10, 13, "all", frozen=True)
    loss = value().mean()
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(2 * loss, leaves), tuple(2 * grad for grad in first))
    torch.testing.assert_close(first, torch.autograd.grad(value("dense").mean(), leaves))
    with torch.no_grad():
        torch.testing.assert_close(value(), value("dense"))


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_bitwise_reproducible(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        value, leaves = problem(300, 200, "all")
        with policy.override(strip=64 * 200, strip_rows=1, tile=16):
            runs = [(loss := value().mean(), *torch.autograd.grad(loss, leaves)) for _ in range(3)]
        assert all(torch.equal(a, b) for again in runs[1:] for a, b in zip(runs[0], again, strict=True))
        torch.testing.assert_close(runs[0][1:], torch.autograd.grad(value("dense").mean(), leaves))
    finally:
        torch.set_num_threads(before)


def test_many_keys_take_the_tiles(passes):
    value, leaves = problem(10, 13, "all")
    with policy.override(strip=1, strip_rows=10**6):
        ours = value()
    torch.testing.assert_close(ours, value("dense"))
    assert not passes and leaves
    with pytest.raises(ValueError, match=r"teacher must have the shape \(2, 3\)"):
        Similarity(normal(2, 3), normal(3, 3)).cross_entropy(Similarity(normal(2, 3)))


def test_no_strip_is_larger_than_a_share_of_the_policy(monkeypatch):
    heights, made = [], module.slices
    monkeypatch.setattr(module, "slices", lambda length, size: heights.append(size) or made(length, size))
    value, _ = problem(300, 200, "all")
    with policy.override(strip=200 * 128, strip_rows=16):
        value(tile=8)
    assert heights[0] == 128 // module.MATRICES
