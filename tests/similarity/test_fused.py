"""The fused path: `Similarity.contrast` with gradients computed in the forward pass."""

import pytest
import torch

from coulomb.similarity import Similarity, plan, policy, streaming


def sides(n, dim, *, dtype=torch.float64, scale=4.0):
    draw = torch.Generator().manual_seed(n * dim)
    made = [torch.nn.functional.normalize(torch.randn(n, dim, dtype=dtype, generator=draw)) for _ in range(2)]
    return [side.requires_grad_() for side in made] + [torch.tensor(scale, dtype=dtype, requires_grad=True)]


def contrast(operands, *, backend="streaming", tile=None, weights=None):
    queries, keys, scale = operands
    S = Similarity(queries, keys, scale=scale, instances=len(queries), unit=True, backend=backend, tile=tile)
    loss = S.contrast(S.positives())
    return loss, torch.autograd.grad(loss, operands, torch.ones_like(loss) if weights is None else weights)


@pytest.fixture
def recomputed(monkeypatch):
    """One entry for each backward pass that recomputes the tiles."""
    calls = []
    backward = streaming.backward
    monkeypatch.setattr(streaming, "backward", lambda *given: calls.append(1) or backward(*given))
    return calls


@pytest.mark.parametrize(
    ("n", "dim", "tile"), [(1, 3, 4), (2, 1, 1), (7, 5, 3), (61, 17, 8), (300, 33, 64), (300, 33, None)]
)
@pytest.mark.parametrize(("strip", "least"), [(1000, 1), (1000, 3), (2**22, 128)])
def test_values_and_gradients_equal_the_stored_matrix(n, dim, tile, strip, least, recomputed):
    with policy.override(strip=strip, strip_rows=least):
        loss, grads = contrast(sides(n, dim), tile=tile)
    expected, wanted = contrast(sides(n, dim), backend="dense")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads, wanted, rtol=1e-10, atol=1e-12)
    assert not recomputed


@pytest.mark.parametrize(
    "weights", [torch.tensor(0.25).expand(9), torch.full((9,), -2.0), torch.arange(9.0), torch.zeros(9)]
)
def test_tiles_are_recomputed_only_for_rows_with_different_upstream_gradients(weights, recomputed):
    weights = weights.double()
    _, grads = contrast(sides(9, 4), tile=4, weights=weights)
    _, wanted = contrast(sides(9, 4), backend="dense", weights=weights)
    torch.testing.assert_close(grads, wanted, rtol=1e-10, atol=1e-12)
    assert len(recomputed) == (len(set(weights.tolist())) > 1)


def test_backward_can_run_twice():
    operands = sides(9, 4)
    S = Similarity(*operands[:2], scale=operands[2], instances=9, unit=True, backend="streaming")
    loss = S.contrast(S.positives()).mean()
    first = torch.autograd.grad(loss, operands, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(2 * loss, operands), tuple(2 * grad for grad in first))


def test_only_inputs_that_require_grad_get_a_gradient():
    queries, keys, _ = sides(9, 4)
    S = Similarity(queries, keys, scale=4.0, instances=9, unit=True, backend="streaming")
    loss = S.contrast(S.positives()).sum()
    grads = torch.autograd.grad(loss, [queries, keys])
    torch.testing.assert_close(grads, contrast(sides(9, 4), backend="dense")[1][:2])


def test_the_fused_path_applies_if_keys_require_grad_and_memory_allows():
    def takes(queries, keys, scale=4.0):
        S = Similarity(queries, keys, scale=scale, instances=9, unit=True, backend="streaming")
        problem = S._problem("negatives")
        return plan.decide(problem, plan.learning(problem)).fused

    queries, keys, _ = sides(9, 4)
    assert takes(queries, keys) and takes(queries.detach(), keys)
    assert not takes(queries, keys.detach())  # streaming costs 4u as well
    with torch.no_grad():
        assert not takes(queries, keys)
    rows = policy.current().strip_rows
    many = policy.current().strip // rows + 1
    narrow, wide = (torch.zeros(many, dim, requires_grad=True) for dim in (1, rows))
    assert not takes(narrow, narrow.detach().requires_grad_())
    assert takes(wide, wide.detach().requires_grad_())  # takes no more memory than the keys
    assert not takes(queries, keys, scale=1e4)  # needs the row maximum


def classes(n, m, dim, *, frozen=(), backend="streaming"):
    """Contrasts rows with class centers with a bias. Rows of unknown class have a loss of 0."""
    draw = torch.Generator().manual_seed(n + m)
    made = {
        "queries": torch.randn(n, dim, dtype=torch.float64, generator=draw),
        "keys": torch.randn(m, dim, dtype=torch.float64, generator=draw),
        "scale": torch.tensor(0.7, dtype=torch.float64),
        "bias": torch.randn(m, dtype=torch.float64, generator=draw),
        "own": torch.randn(n, dtype=torch.float64, generator=draw),
    }
    labels = torch.randint(-1, m, (n,), generator=draw)
    for name, value in made.items():
        value.requires_grad_(name not in frozen)
    S = Similarity(
        made["queries"], made["keys"], scale=made["scale"], column_bias=made["bias"], query_ids=labels,
        key_ids=torch.arange(m), backend=backend, tile=5,
    )  # fmt: skip
    known = labels >= 0
    loss = S.contrast(made["own"], counted=known).masked_fill(~known, 0)
    learning = [value for value in made.values() if value.requires_grad]
    return loss, torch.autograd.grad(loss.sum() / 3, learning, retain_graph=True), known, learning


@pytest.mark.parametrize("frozen", [(), ("queries",), ("queries", "scale"), ("bias", "own"), ("keys",), ("scale",)])
@pytest.mark.parametrize(("n", "m"), [(13, 7), (1, 1), (4, 1), (5, 31)])
def test_class_centers_with_a_bias_and_unknown_classes(frozen, n, m, recomputed):
    loss, grads, _, _ = classes(n, m, 6, frozen=frozen)
    expected, wanted, _, _ = classes(n, m, 6, frozen=frozen, backend="dense")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads, wanted, rtol=1e-10, atol=1e-12)
    assert len(recomputed) == ("keys" in frozen)


def test_rows_with_different_upstream_gradients_among_unknown_classes(recomputed):
    weights = torch.arange(13.0, dtype=torch.float64)
    loss, _, _, learning = classes(13, 7, 6)
    expected, _, _, same = classes(13, 7, 6, backend="dense")
    assert not recomputed
    torch.testing.assert_close(
        torch.autograd.grad(loss, learning, weights),
        torch.autograd.grad(expected, same, weights),
        rtol=1e-10,
        atol=1e-12,
    )
    assert len(recomputed) == 1


def test_second_derivatives_raise():
    loss, _ = contrast(operands := sides(9, 4))
    with pytest.raises(RuntimeError, match="use_backend"):
        torch.autograd.grad(loss.sum(), operands[0], create_graph=True)


def test_small_problems_have_second_derivatives():
    queries, keys, scale = sides(9, 4)
    loss = Similarity(queries, keys, scale=scale).contrast(torch.zeros(9, dtype=torch.float64), "all").sum()
    (first,) = torch.autograd.grad(loss, keys, create_graph=True)
    assert torch.autograd.grad(first.sum(), queries)[0].abs().max() > 0
