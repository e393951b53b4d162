"""Reductions of the rows of S = scale·Q·Kᵀ + bias, tile by tile; S is never stored. Plain torch on any device, no autograd.

Memory is one or two tiles and a few vectors. The backward pass computes the tiles again, except the tiles that the plan
cached in the forward pass. Cost with u = N·M·D flops, where a product is 2u: keys that are the queries 4u (S = Sᵀ, the
upper triangle suffices), both directions 8u, one direction 8u, with frozen queries 6u, with frozen keys 4u (the mean key
under the softmax comes with the forward pass). `coulomb.similarity.fused` takes 6u where it applies.

Exponentials are powers of two: t = s·log2(e), exp s = exp2(t). If |t| is bounded by `tiles.SAFE_EXPONENT` no maximum is
needed, so that one exponential serves row i and column j; otherwise an online maximum keeps any magnitude exact.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.workers import alone
from coulomb.similarity.engine import Cache, Gradients, Needs, Plan, Reduced
from coulomb.similarity.products import add_product, full_precision
from coulomb.similarity.tiles import LOG2E, Problem, Tiles, powered


def forward(problem: Problem, plan: Plan) -> Reduced:
    """Reduces every row (and column)."""
    with full_precision(problem.queries_ND):
        if problem.both and not problem.bounded:  # rows and columns have different maxima
            rows, columns = (_rows(side, False, 0) for side in (replace(problem, both=False), problem.transposed()))
            return Reduced(rows.rows_PN, columns.rows_PN[0])
        return _triangle(problem, plan.cached) if plan.triangular else _rows(problem, plan.attend, plan.cached)


def backward(
    problem: Problem, plan: Plan, reduced: Reduced, grad_PN: Tensor, grad_M: Tensor | None, needs: Needs
) -> Gradients:
    """The gradients that are needed; keys that are the queries add theirs to the queries'.

    ``reduced`` may be over more keys than the problem has (keys of other processes): P_ij = exp(s_ij − lse_i) all the same.
    """
    with full_precision(problem.queries_ND):
        if problem.both and not problem.bounded:
            return _two_passes(problem, plan, reduced, grad_PN, grad_M, needs)
        need_queries, need_keys, need_scale, need_bias = needs
        itself = problem.keys_MD is None
        if reduced.attended_ND is not None and not (need_keys or itself or need_bias):
            return scaled(problem, plan, need_scale, reduced.attended_ND * grad_PN.T, None, None)
        if plan.triangular:
            return scaled(problem, plan, need_scale, _triangle_backward(problem, reduced, grad_PN), None, None)
        wanted = need_queries or need_scale, need_keys or itself, need_bias
        return scaled(problem, plan, need_scale, *_rows_backward(problem, reduced, grad_PN, grad_M, wanted))


def scaled(
    problem: Problem,
    plan: Plan,
    need_scale: bool,
    grad_ND: Tensor | None,
    grad_MD: Tensor | None,
    grad_bias_M: Tensor | None,
) -> Gradients:
    """`Gradients` from G K, Gᵀ Q and Gᵀ 1, which are modified; for a triangular problem from (G + Gᵀ) Q."""
    grad_scale = None
    if need_scale and grad_ND is not None:
        grad_scale = (problem.queries_ND * grad_ND).sum()
        grad_scale = grad_scale / 2 if plan.triangular else grad_scale
    if problem.keys_MD is None and grad_ND is not None and grad_MD is not None:
        grad_ND, grad_MD = grad_ND.add_(grad_MD), None
    for grad in (grad_ND, grad_MD):
        if grad is not None:
            with alone(grad):
                grad.mul_(problem.scale)
    return Gradients(grad_ND, grad_MD, grad_scale, grad_bias_M)


def terms(problem: Problem, tile: Tensor) -> Tensor:
    """The summands of ``"sum"`` or ``"softplus"`` from a tile of s."""
    if problem.reduction == "softplus":
        return softplus(tile, threshold=50)
    return tile.nan_to_num(nan=torch.nan, posinf=torch.inf, neginf=0)  # faster than filling by a mask


def term_slopes_(problem: Problem, tile: Tensor) -> Tensor:
    """Derivatives of these summands by s, in place: 1 or σ(s); 0 for pairs that do not count."""
    return tile.sigmoid_() if problem.reduction == "softplus" else tile.gt_(-torch.inf)


def _rows(problem: Problem, attend: bool, room: int) -> Reduced:
    """Tiles of a rectangle. ``room``: elements of the cache (one power, bounded)."""
    tiles, powers, bounded, cache = Tiles(problem), problem.powers, problem.bounded, Cache(room)
    total_LPN = tiles.queries_ND.new_zeros(tiles.lanes, len(powers), len(tiles.queries_ND))
    largest_LN = torch.full_like(total_LPN[:, 0], 0 if bounded else -torch.inf)
    columns_M = torch.zeros_like(tiles.keys_MD[:, 0]) if problem.both else None
    attended_LND = tiles.queries_ND.new_zeros(tiles.lanes, *tiles.queries_ND.shape) if attend else None

    def visit(rows: slice, cols: slice, lane: int) -> None:
        keep = cache.reserve(rows, cols)
        tile, weights = tiles.exponents(rows, cols, keep=keep), tiles.pairs.weights(rows, cols)
        total_PR = total_LPN[lane, :, rows]
        if problem.reduction != "lse":
            summands = terms(problem, tile)
            total_PR[0] += (summands if weights is None else summands * weights).sum(1)
            return
        if not bounded:
            largest = largest_LN[lane, rows]
            now = torch.maximum(largest, tile.amax(1))
            fade = (largest - finite(now)).exp2_()
            total_PR *= torch.stack([fade**power for power in powers])
            if attended_LND is not None:
                attended_LND[lane, rows].mul_(fade[:, None])
            tile.sub_(finite(now)[:, None])
            largest.copy_(now)
        if columns_M is not None and problem.guide is not None:
            here, there = problem.guide.sides(rows, cols)
            last = tile.exp2_()
            total_PR[0] += here.mul_(last).sum(1)
            columns_M[cols] += there.mul_(last).sum(0)
        else:
            for p, last in enumerate(powered(tile, powers)):
                total_PR[p] += (last if weights is None else last * weights).sum(1)
            if weights is not None:
                last.mul_(weights)
            if columns_M is not None:
                columns_M[cols] += last.sum(0)
        if keep:
            cache[rows.start, cols.start] = last
        if attended_LND is not None:
            add_product(attended_LND[lane, rows], tiles.operand(last), tiles.operands_MD[cols])

    tiles.visit(visit, columns=problem.both)
    largest_N = finite(largest_LN.amax(0))
    fade_LN = (largest_LN - largest_N).exp2_()
    total_PN = torch.stack([(total_LPN[:, p] * fade_LN**power).sum(0) for p, power in enumerate(powers)])
    attended_ND = None
    if attended_LND is not None:
        attended_ND = (attended_LND * fade_LN[:, :, None]).sum(0) if tiles.lanes > 1 else attended_LND[0]
        attended_ND.div_(total_PN[0].masked_fill(total_PN[0] == 0, 1)[:, None])
    if problem.reduction == "lse":
        total_PN.log2_().add_(largest_N * total_PN.new_tensor(powers)[:, None])
    columns_M = None if columns_M is None else columns_M.log2_().mul_(1 / LOG2E)
    return Reduced(total_PN.mul_(1 / problem.unit_of_t), columns_M, attended_ND, cache=cache)


def finite(largest: Tensor) -> Tensor:
    """0 where there is no pair so far, which avoids ∞ − ∞."""
    return largest.masked_fill(largest == -torch.inf, 0)


def _rows_backward(
    problem: Problem, reduced: Reduced, grad_PN: Tensor, grad_M: Tensor | None, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """G K, Gᵀ Q and Gᵀ 1, with G_ij = Σ_p p·g_pi·exp2(p·t_ij − lse2_pi) (+ the same of the columns)."""
    if problem.coarse:
        (weight_PN, largest_N), reference_PN = _exact_weights(problem, reduced.rows_PN, grad_PN), None
        tiles = Tiles(problem, largest_N=largest_N)
    else:
        weight_PN, reference_PN = row_weights(problem, reduced.rows_PN, grad_PN)
        tiles = Tiles(problem)
    weight_M = None
    if grad_M is not None and reduced.columns_M is not None:
        weight_M = row_weights(problem, reduced.columns_M[None], grad_M[None])[0][0]
    # One power, one direction: G = E∘w_i, and the factor w goes to the thin operands instead of the tile.
    thin = len(problem.powers) == 1 and weight_M is None
    weighted_ND = tiles.operand(tiles.queries_ND * weight_PN[0, :, None] if thin else tiles.queries_ND)
    grad_LND = tiles.queries_ND.new_zeros(tiles.lanes, *tiles.queries_ND.shape) if wanted[0] else None
    grad_MD = torch.zeros_like(tiles.keys_MD) if wanted[1] else None
    grad_bias_M = torch.zeros_like(tiles.keys_MD[:, 0]) if wanted[2] else None

    def visit(rows: slice, cols: slice, lane: int) -> None:
        exponential = reduced.cache.of(rows, cols)
        if problem.guide is not None:
            assert weight_M is not None
            here, there = problem.guide.sides(rows, cols)
            tile = here.mul_(weight_PN[0, rows, None]).addcmul_(there, weight_M[cols])
            tile.mul_(tiles.exponents(rows, cols).exp2_() if exponential is None else exponential)
        elif exponential is not None:
            assert weight_M is not None
            tile = tiles.buffer(exponential.shape)
            torch.add(weight_PN[0, rows, None], weight_M[cols], out=tile).mul_(exponential)
        elif problem.reduction == "sum" and problem.at_least_N is None:
            tile = tiles.counted(rows, cols)
        elif problem.reduction != "lse":
            tile = term_slopes_(problem, tiles.exponents(rows, cols))
        elif thin:
            tile = tiles.exponents(rows, cols)
            tile = (tile if reference_PN is None else tile.sub_(reference_PN[0, rows, None])).exp2_()
        else:
            weight_C = None if weight_M is None else weight_M[cols]
            tile = _weighted_powers(
                problem, tiles.exponents(rows, cols), weight_PN[:, rows], reference_PN, rows, weight_C
            )
        weights = tiles.pairs.weights(rows, cols)
        if weights is not None:
            tile = tile.mul_(weights)
        if grad_bias_M is not None:
            grad_bias_M[cols] += tile.T.mv(weight_PN[0, rows]) if thin else tile.sum(0)
        tile = tiles.operand(tile)
        if grad_LND is not None:
            add_product(grad_LND[lane, rows], tile, tiles.operands_MD[cols])
        if grad_MD is not None:
            add_product(grad_MD[cols], tile.T, weighted_ND[rows])

    tiles.visit(visit, rows=wanted[0], columns=wanted[1] or wanted[2])
    grad_ND = None
    if grad_LND is not None:
        grad_ND = grad_LND.sum(0) if tiles.lanes > 1 else grad_LND[0]
        grad_ND = grad_ND.mul_(weight_PN[0, :, None]) if thin else grad_ND
    return grad_ND, grad_MD, grad_bias_M


def row_weights(problem: Problem, lse: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None]:
    """(w, reference): G = E∘w with E = exp2(p·t − reference). If bounded, w contains 2^−lse and there is no reference."""
    if problem.reduction != "lse":
        return grad, None
    empty = lse == -torch.inf
    lse2 = (lse * LOG2E).masked_fill_(empty, 0)
    powers = grad.new_tensor(problem.powers)[:, None] if problem.powers != (1.0,) else 1
    weight = (grad * powers * (-lse2).exp2() if problem.bounded else grad * powers).masked_fill(empty, 0)
    return weight, None if problem.bounded else lse2


def _exact_weights(problem: Problem, lse_PN: Tensor, grad_PN: Tensor) -> tuple[Tensor, Tensor]:
    """(w, largest t of each row): G = E∘w with E = exp2(p·(t − largest)), by two more passes, where lse is too coarse.

    ``lse_PN`` may be over more keys than the problem has, of which these have a share, 1 if it is 1 to rounding.
    """
    tiles, powers = Tiles(problem), grad_PN.new_tensor(problem.powers)[:, None]
    largest_LN = grad_PN.new_full((tiles.lanes, grad_PN.shape[1]), -torch.inf)
    total_LPN = grad_PN.new_zeros(tiles.lanes, *grad_PN.shape)

    def find_largest(rows: slice, cols: slice, lane: int) -> None:
        largest_LN[lane, rows] = torch.maximum(largest_LN[lane, rows], tiles.exponents(rows, cols).amax(1))

    def add(rows: slice, cols: slice, lane: int) -> None:
        tile, weights = tiles.exponents(rows, cols), tiles.pairs.weights(rows, cols)
        for p, last in enumerate(powered(tile, problem.powers)):
            total_LPN[lane, p, rows] += (last if weights is None else last * weights).sum(1)

    tiles.visit(find_largest)
    largest_N = finite(largest_LN.amax(0))
    tiles = Tiles(problem, largest_N=largest_N)
    tiles.visit(add)
    total_PN = total_LPN.sum(0)
    less = (total_PN.log2() + powers * largest_N) / LOG2E - lse_PN
    less.masked_fill_(less >= -8 * torch.finfo(less.dtype).eps * lse_PN.abs(), 0)
    return (grad_PN * powers * less.exp() / total_PN).masked_fill(total_PN == 0, 0), largest_N


def _weighted_powers(
    problem: Problem,
    tile: Tensor,
    weight_PR: Tensor,
    reference_PN: Tensor | None,
    rows: slice,
    weight_C: Tensor | None,
) -> Tensor:
    """G on a tile of exponents t, for two powers or both directions."""
    if weight_C is not None:
        return tile.exp2_().mul_(weight_PR[0, :, None] + weight_C)
    if reference_PN is None:
        first, second = powered(tile, problem.powers)
    else:
        (power0, power1), (reference0, reference1) = problem.powers, reference_PN[:, rows, None]
        first = (tile * power0).sub_(reference0).exp2_()
        second = tile.mul_(power1).sub_(reference1).exp2_()
    return first.mul_(weight_PR[0, :, None]).addcmul_(second, weight_PR[1, :, None])


def _triangle(problem: Problem, room: int) -> Reduced:
    """S = Sᵀ: each tile above the diagonal is summed along its rows and along its columns."""
    tiles, powers, cache = Tiles(problem), problem.powers, Cache(room)
    total_PN = tiles.queries_ND.new_zeros(len(powers), len(tiles.queries_ND))

    def visit(rows: slice, cols: slice) -> None:
        keep = cache.reserve(rows, cols)
        for total, tile in zip(total_PN, powered(tiles.exponents(rows, cols, keep=keep), powers), strict=True):
            total[rows] += tile.sum(1)
            if rows != cols:
                total[cols] += tile.sum(0)
        if keep:
            cache[rows.start, cols.start] = tile

    tiles.visit_triangle(visit)
    return Reduced(total_PN.log2_().mul_(1 / LOG2E), cache=cache)


def _triangle_backward(problem: Problem, reduced: Reduced, grad_PN: Tensor) -> Tensor:
    """(G + Gᵀ) Q, with G + Gᵀ = Σ_p E_p∘(w_pi + w_pj): symmetric again, so tiles above the diagonal suffice."""
    tiles, powers = Tiles(problem), problem.powers
    weight_PN, _ = row_weights(problem, reduced.rows_PN, grad_PN)
    with alone(tiles.queries_ND):
        grad_ND = torch.zeros_like(tiles.queries_ND)

    def weights(p: int, rows: slice, cols: slice) -> Tensor:
        out = tiles.buffer((rows.stop - rows.start, cols.stop - cols.start), "weights")
        return torch.add(weight_PN[p, rows, None], weight_PN[p, cols], out=out)

    def visit(rows: slice, cols: slice) -> None:
        exponential = reduced.cache.of(rows, cols)
        if exponential is not None:
            tile = weights(0, rows, cols).mul_(exponential)
        else:
            tile, *second = powered(tiles.exponents(rows, cols), powers)
            tile.mul_(weights(0, rows, cols))
            if second:
                tile.addcmul_(second[0], weights(1, rows, cols))
        tile = tiles.operand(tile)
        add_product(grad_ND[rows], tile, tiles.operands_MD[cols])
        if rows != cols:
            add_product(grad_ND[cols], tile.T, tiles.operands_MD[rows])

    tiles.visit_triangle(visit)
    return grad_ND


def _two_passes(
    problem: Problem, plan: Plan, reduced: Reduced, grad_PN: Tensor, grad_M: Tensor | None, needs: Needs
) -> Gradients:
    """Both directions when the exponentials need a maximum, which rows and columns do not share."""
    assert reduced.columns_M is not None and grad_M is not None
    rows = backward(replace(problem, both=False), plan, Reduced(reduced.rows_PN), grad_PN, None, needs)
    swapped = needs[1], needs[0], needs[2], False
    columns = backward(problem.transposed(), plan, Reduced(reduced.columns_M[None]), grad_M[None], None, swapped)
    there = columns.keys_MD, columns.queries_ND, columns.scale, None
    return Gradients(*(None if a is None or b is None else a + b for a, b in zip(rows, there, strict=True)))
