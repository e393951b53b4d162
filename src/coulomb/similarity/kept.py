"""The folds of a small problem: S as one tile, whose exponentials are kept for the backward pass. No autograd here.

The same numbers as `coulomb.similarity.streaming`, with as few operations as possible, since those are what takes the time.
"""

import torch
from torch import Tensor

from coulomb.similarity.problem import LOG2E, Problem, below, full_precision
from coulomb.similarity.products import product, transposed_product
from coulomb.similarity.streaming import Folded, Gradients, scaled


def forward(problem: Problem) -> Folded:
    """The fold of every row (and column), with E_p = exp2(p·t − r) kept, [P, N, M]: r = 0 if bounded, else the row's lse.

    Both directions with a maximum share no exponential: then t is kept.
    """
    with full_precision(problem.queries_ND):
        tile = exponents(problem)
        if problem.linear:
            return Folded(_values(tile)[None].mul_(1 / LOG2E), kept=(tile > -torch.inf).to(tile.dtype)[None])
        if problem.both and not problem.bounded:
            along_rows, along_columns = (_softmax(problem, tile, 1.0, dim)[0] for dim in (1, 0))
            return Folded(along_rows[None], along_columns, kept=tile[None])
        if not problem.bounded:
            sums, kept = zip(*[_softmax(problem, tile, power, 1) for power in problem.powers], strict=True)
            return Folded(torch.stack(sums), kept=torch.stack(kept))
        weights = problem.pairs.weights(*problem.pairs.everything)
        exponential = _powers(tile, problem.powers)
        if weights is not None:
            exponential.mul_(weights)
        rows = exponential.sum(2).log2_().mul_(1 / LOG2E)
        columns = exponential[0].sum(0).log2_().mul_(1 / LOG2E) if problem.both else None
        return Folded(rows, columns, kept=exponential)


def backward(
    problem: Problem, folded: Folded, grad_PN: Tensor, grad_M: Tensor | None, needs: tuple[bool, bool, bool, bool]
) -> Gradients:
    """Gradients for queries, keys, scale and bias, as far as ``needs`` asks; those of keys that are the queries are added."""
    kept, queries_ND, keys_MD = folded.kept, problem.queries_ND, problem.keys
    assert kept is not None
    with full_precision(queries_ND):
        weight_PN = _weights(problem, folded.rows_PN, grad_PN)
        need_queries, need_keys, need_scale, need_bias = needs
        need_queries, itself = need_queries or need_scale, problem.keys_MD is None
        if problem.triangular:
            gradient = (weight_PN[:, :, None] + weight_PN[:, None]).mul_(kept)
            grad_ND = product(gradient[0] if len(gradient) == 1 else gradient.sum(0), queries_ND.T)
            grad_scale = (queries_ND * grad_ND).sum() / 2 if need_scale else None
            return Gradients(grad_ND.mul_(problem.scale), None, grad_scale, None)
        if problem.both:
            assert folded.columns_M is not None and grad_M is not None
            gradient = _both(problem, folded, kept[0], weight_PN[0], grad_M)
        else:
            gradient = kept[0] * weight_PN[0, :, None]
            if len(kept) > 1:
                gradient.addcmul_(kept[1], weight_PN[1, :, None])
        return scaled(
            problem,
            need_scale,
            product(gradient, keys_MD.T) if need_queries else None,
            transposed_product(gradient, queries_ND) if need_keys or itself else None,
            gradient.sum(0) if need_bias else None,
        )


def exponents(problem: Problem) -> Tensor:
    """t = s·log2(e) [N, M], −inf where a pair does not count."""
    tile = product(problem.queries_ND * (problem.scale * LOG2E), problem.keys)
    if problem.bias_M is not None:
        tile.add_(problem.bias_M, alpha=LOG2E)
    if problem.at_least_N is not None:
        tile.masked_fill_(tile < problem.at_least_N[:, None] * LOG2E, -torch.inf)
    tile = problem.pairs.hide_(tile, *problem.pairs.everything)
    if problem.top_k is not None:
        last = tile.topk(problem.top_k, dim=1).values[:, -1:]
        tile.masked_fill_(tile < below(last, problem.scale * LOG2E), -torch.inf)
    return tile


def _values(tile: Tensor) -> Tensor:
    return tile.masked_fill(tile == -torch.inf, 0).sum(1)


def _powers(tile: Tensor, powers: tuple[float, ...]) -> Tensor:
    if len(powers) == 1:
        return (tile if powers[0] == 1 else tile.mul_(powers[0])).exp2_()[None]
    out = tile.new_empty(2, *tile.shape)
    torch.exp2(torch.mul(tile, powers[0], out=out[0]), out=out[0])
    if powers[1] == 2 * powers[0]:
        torch.mul(out[0], out[0], out=out[1])
    else:
        torch.exp2(torch.mul(tile, powers[1], out=out[1]), out=out[1])
    return out


def _softmax(problem: Problem, tile: Tensor, power: float, dim: int) -> tuple[Tensor, Tensor]:
    if tile.numel() == 0:
        return tile.new_full((tile.shape[1 - dim],), -torch.inf), tile
    largest = tile.amax(dim, keepdim=True)
    largest.masked_fill_(largest == -torch.inf, 0)
    out = (tile - largest).mul_(power).exp2_()
    weights = problem.pairs.weights(*problem.pairs.everything)
    if weights is not None:
        out.mul_(weights)
    total = out.sum(dim, keepdim=True)
    out.div_(total.masked_fill(total == 0, 1))
    return total.log2_().add_(largest, alpha=power).mul_(1 / LOG2E).squeeze(dim), out


def _weights(problem: Problem, lse: Tensor, grad: Tensor) -> Tensor:
    if problem.powers != (1.0,):
        grad = grad * grad.new_tensor(problem.powers)[:, None]
    if problem.linear or not problem.bounded:
        return grad
    weight = (lse * -LOG2E).exp2_().mul_(grad)
    return weight.masked_fill_(lse == -torch.inf, 0) if problem.pairs.may_be_empty else weight


def _both(problem: Problem, folded: Folded, kept: Tensor, weight_N: Tensor, grad_M: Tensor) -> Tensor:
    assert folded.columns_M is not None
    if problem.bounded:
        return (weight_N[:, None] + _weights(problem, folded.columns_M, grad_M)).mul_(kept)
    along_rows = _softmax(problem, kept, 1.0, 1)[1].mul_(weight_N[:, None])
    return along_rows.addcmul_(_softmax(problem, kept, 1.0, 0)[1], grad_M)
