"""Reductions of a problem so small that S is one tile, whose exponentials are cached for the backward pass. No autograd.

Computes the same as `coulomb.similarity.streaming`, with few operators: small problems are bound by their number.
"""

import torch
from torch import Tensor

from coulomb.ground.machine import exclude_
from coulomb.similarity.engine import Gradients, Needs, Plan, Reduced
from coulomb.similarity.products import full_precision, product
from coulomb.similarity.streaming import scaled, term_slopes_, terms
from coulomb.similarity.tiles import LOG2E, Problem, Tiles, below, powered


def forward(problem: Problem, plan: Plan) -> Reduced:
    """Reduces every row (and column).

    Caches [P, N, M]: E_p = exp2(p·t) and the row sums if bounded, else the softmax; t if rows and columns have different
    maxima; the slopes of other reductions than lse.
    """
    with full_precision(problem.queries_ND):
        tile, weights = _exponents(problem), problem.pairs.weights(*problem.pairs.everything)
        if problem.reduction != "lse":
            summands, slopes = terms(problem, tile), term_slopes_(problem, tile)
            if weights is not None:
                summands, slopes = summands.mul_(weights), slopes.mul_(weights)
            return Reduced(summands.sum(1)[None], cached=[slopes[None]])
        if problem.both and not problem.bounded:
            rows, columns = (_softmax(problem, tile, 1.0, dim)[0] for dim in (1, 0))
            return Reduced(rows[None], columns, cached=[tile[None]])
        if not problem.bounded:
            sums, softmaxes = zip(*[_softmax(problem, tile, power, 1) for power in problem.powers], strict=True)
            return Reduced(torch.stack(sums), cached=[torch.stack(softmaxes)])
        exponentials = torch.stack(powers) if len(powers := powered(tile, problem.powers)) > 1 else powers[0][None]
        if weights is not None:
            exponentials.mul_(weights)
        totals_PN = exponentials.sum(2)
        column_sums = exponentials[0].sum(0).log2_().mul_(1 / LOG2E) if problem.both else None
        return Reduced(totals_PN.log2().mul_(1 / LOG2E), column_sums, cached=[exponentials, totals_PN])


def backward(
    problem: Problem, plan: Plan, reduced: Reduced, grad_PN: Tensor, grad_M: Tensor | None, needs: Needs
) -> Gradients:
    """The gradients that are needed; keys that are the queries add theirs to the queries'."""
    (cached, *totals), queries_ND, keys_MD = reduced.cached, problem.queries_ND, problem.keys
    with full_precision(queries_ND):
        weight_PN = grad_PN
        if problem.reduction == "lse":
            weight_PN = _weights(problem, totals[0] if totals else cached.sum(2), grad_PN)
        need_queries, need_keys, need_scale, need_bias = needs
        if plan.triangular:
            gradient = (weight_PN[:, :, None] + weight_PN[:, None]).mul_(cached)
            grad_ND = product(gradient[0] if len(gradient) == 1 else gradient.sum(0), queries_ND.T)
            return scaled(problem, plan, need_scale, grad_ND, None, None)
        factor: Tensor | float = 1.0  # of the rows of ``gradient``, which goes to the thin operands if it can
        if problem.both:
            assert reduced.columns_M is not None and grad_M is not None
            if problem.bounded:
                weight_M = _weights(problem, cached[0].sum(0), grad_M)
                gradient = (weight_PN[0, :, None] + weight_M).mul_(cached[0])
            else:
                gradient = _softmax(problem, cached[0], 1.0, 1)[1].mul_(weight_PN[0, :, None])
                gradient.addcmul_(_softmax(problem, cached[0], 1.0, 0)[1], grad_M)
        elif len(cached) > 1:
            gradient = (cached[0] * weight_PN[0, :, None]).addcmul_(cached[1], weight_PN[1, :, None])
        else:
            gradient, factor = cached[0], weight_PN[0, :, None]
        need_queries, need_keys = need_queries or need_scale, need_keys or problem.keys_MD is None
        return scaled(
            problem,
            plan,
            need_scale,
            product(gradient, keys_MD.T) * factor if need_queries else None,
            product((queries_ND * factor).T, gradient.T).T if need_keys else None,
            (gradient * factor).sum(0) if need_bias else None,
        )


def _exponents(problem: Problem) -> Tensor:
    """t [N, M] (see `Tiles`), −inf for pairs that do not count."""
    tiles = Tiles(problem, half=False)
    tile = tiles.complete_(product(problem.queries_ND * tiles.scale_of_t, problem.keys), *problem.pairs.everything)
    if problem.top_k is not None:
        last = tile.topk(problem.top_k, dim=1, sorted=False).values.amin(1, keepdim=True)
        exclude_(tile, torch.lt, tile, below(last, tiles.scale_of_t))
    return tile


def _softmax(problem: Problem, tile: Tensor, power: float, dim: int) -> tuple[Tensor, Tensor]:
    """(lse, softmax) of power·t along ``dim``, by the maximum."""
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


def _weights(problem: Problem, total: Tensor, grad: Tensor) -> Tensor:
    """What cached exponentials are multiplied by, given their sums; 0 for rows without pairs."""
    if problem.powers != (1.0,):
        grad = grad * grad.new_tensor(problem.powers)[:, None]
    if problem.both and not problem.bounded:  # t was cached
        return grad
    return (grad / total if problem.bounded else grad).masked_fill(total == 0, 0)  # a softmax contains 1/total
