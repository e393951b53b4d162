import pytest
import torch

from coulomb.similarity import Similarity, ahead, streaming


def sides(n, dim, *, dtype=torch.float64, scale=4.0):
    draw = torch.Generator().manual_seed(n * dim)
    made = [torch.nn.functional.normalize(torch.randn(n, dim, dtype=dtype, generator=draw)) for _ in range(2)]
    return [side.requires_grad_() for side in made] + [torch.tensor(scale, dtype=dtype, requires_grad=True)]


def contrast(operands, *, backend="streaming", tile=None, weights=None):
    queries, keys, scale = operands
    S = Similarity(queries, keys, scale=scale, instances=len(queries), unit=True, backend=backend, tile=tile)
    loss = S.contrast()
    return loss, torch.autograd.grad(loss, operands, torch.ones_like(loss) if weights is None else weights)


@pytest.fixture
def recomputed(monkeypatch):
    """How often the backward pass went over the tiles again."""
    calls = []
    backward = streaming.backward
    monkeypatch.setattr(streaming, "backward", lambda *given: calls.append(1) or backward(*given))
    return calls


@pytest.mark.parametrize(
    ("n", "dim", "tile"), [(1, 3, 4), (2, 1, 1), (7, 5, 3), (61, 17, 8), (300, 33, 64), (300, 33, None)]
)
@pytest.mark.parametrize(("strip", "least"), [(1000, 1), (1000, 3), (2**22, 128)])
def test_values_and_gradients_are_those_of_the_stored_matrix(n, dim, tile, strip, least, monkeypatch, recomputed):
    monkeypatch.setattr(ahead, "STRIP", strip)
    monkeypatch.setattr(ahead, "LEAST_ROWS", least)
    loss, grads = contrast(sides(n, dim), tile=tile)
    expected, wanted = contrast(sides(n, dim), backend="dense")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads, wanted, rtol=1e-10, atol=1e-12)
    assert not recomputed


@pytest.mark.parametrize(
    "weights", [torch.tensor(0.25).expand(9), torch.full((9,), -2.0), torch.arange(9.0), torch.zeros(9)]
)
def test_any_gradient_is_served_and_tiles_are_recomputed_only_for_rows_that_differ(weights, recomputed):
    weights = weights.double()
    _, grads = contrast(sides(9, 4), tile=4, weights=weights)
    _, wanted = contrast(sides(9, 4), backend="dense", weights=weights)
    torch.testing.assert_close(grads, wanted, rtol=1e-10, atol=1e-12)
    assert len(recomputed) == (len(set(weights.tolist())) > 1)


def test_the_graph_may_be_used_twice():
    operands = sides(9, 4)
    loss = Similarity(*operands[:2], scale=operands[2], instances=9, unit=True, backend="streaming").contrast().mean()
    first = torch.autograd.grad(loss, operands, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(2 * loss, operands), tuple(2 * grad for grad in first))


def test_only_what_learns_gets_a_gradient():
    queries, keys, _ = sides(9, 4)
    loss = Similarity(queries, keys, scale=4.0, instances=9, unit=True, backend="streaming").contrast().sum()
    grads = torch.autograd.grad(loss, [queries, keys])
    torch.testing.assert_close(grads, contrast(sides(9, 4), backend="dense")[1][:2])


def test_taken_where_both_sides_learn_and_a_strip_has_room():
    def takes(queries, keys, **options):
        S = Similarity(queries, keys, scale=4.0, instances=9, unit=True, **options)
        return ahead.fits(S._problem("negatives"), 0)

    queries, keys, _ = sides(9, 4)
    assert takes(queries, keys)
    assert not takes(queries, keys.detach()) and not takes(queries.detach(), keys)  # a mean key is cheaper: 4u
    with torch.no_grad():
        assert not takes(queries, keys)
    long = torch.zeros(ahead.STRIP // ahead.LEAST_ROWS + 1, 1, requires_grad=True)
    assert not takes(long, long.detach().requires_grad_())
    steep = Similarity(queries, keys, scale=1e4, instances=9, unit=True)  # needs a maximum
    assert not ahead.fits(steep._problem("negatives"), 0)


def test_no_second_derivative():
    loss, _ = contrast(operands := sides(9, 4))
    with pytest.raises(RuntimeError, match="use_backend"):
        torch.autograd.grad(loss.sum(), operands[0], create_graph=True)
