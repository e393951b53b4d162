"""Row folds of S = scale·Q·Kᵀ + bias, tile by tile; S is never stored. Plain torch, any device; no autograd here.

Memory is one or two tiles and a few vectors; the backward pass recomputes the tiles (all but those that
`Problem.room_to_keep` has room for). Costs, with u = N·M·D flops (a
product is 2u): keys that are the queries 4u (S = Sᵀ: the upper triangle suffices), both directions 8u, one direction 8u,
6u if the queries are frozen and 4u if the keys are (the softmax's mean key comes with the forward pass). One value a row
against its pairs, with keys that learn, `coulomb.similarity.ahead` does in 6u.

Everything is kept in powers of two: t = s·log2(e), exp s = exp2(t). When |t| is bounded by `SAFE_EXPONENT` no maximum is
needed, so that one exponential serves row i and column j alike; otherwise an online maximum keeps any magnitude exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coulomb.similarity import products
from coulomb.similarity.keeping import Keeping, weighted
from coulomb.similarity.problem import LOG2E, Problem, Tiles, full_precision, powered


@dataclass(eq=False)
class Folded:
    """Results of `forward`."""

    rows_PN: Tensor  # log Σ_j exp(p·s_ij) for each power; −inf where no pair counts
    columns_M: Tensor | None = None  # the same along the columns, when asked for both
    attended_ND: Tensor | None = None  # Σ_j softmax(s_i)_j k_j, when asked for
    kept: Tensor | None = None  # of a small problem, what `coulomb.similarity.kept` keeps
    tiles: Sequence[Tensor] = ()  # the exponentials of the first tiles, as many as there was room for


@dataclass(eq=False)
class Gradients:
    """Results of `backward`."""

    queries_ND: Tensor | None
    keys_MD: Tensor | None
    scale: Tensor | None
    bias_M: Tensor | None


def forward(problem: Problem, *, attend: bool = False, learning: bool = False) -> Folded:
    """The fold of every row (and column).

    ``attend``: also the softmax's mean key, by which the backward pass needs no tiles (one power, one direction).
    ``learning``: there will be a backward pass, for which some exponentials are kept (`Problem.room_to_keep`).
    """
    with full_precision(problem.queries_ND):
        if problem.both and not problem.bounded:  # a row's maximum is not its columns'
            sides = replace(problem, both=False), transposed(problem)
            rows, columns = (rows_forward(Tiles(side), False).rows_PN for side in sides)
            return Folded(rows, columns[0])
        room = problem.room_to_keep if learning else 0
        return (
            triangle_forward(Tiles(problem), room) if problem.triangular else rows_forward(Tiles(problem), attend, room)
        )


def backward(
    problem: Problem,
    folded: Folded,
    grad_PN: Tensor,
    grad_M: Tensor | None = None,
    needs: tuple[bool, bool, bool, bool] = (True, True, True, True),
) -> Gradients:
    """Gradients for queries, keys, scale and bias, as far as ``needs`` asks; those of keys that are the queries are added.

    ``folded`` may hold the fold over more keys than the problem has (sharded keys): P_ij = exp(s_ij − lse_i) all the same.
    """
    with full_precision(problem.queries_ND):
        if problem.both and not problem.bounded:
            return _two_passes(problem, folded, grad_PN, grad_M, needs)
        queries_ND, scale = problem.queries_ND, problem.scale
        need_queries, need_keys, need_scale, need_bias = needs
        itself = problem.keys_MD is None
        if folded.attended_ND is not None and not (need_keys or itself or need_bias):
            grad_ND = folded.attended_ND * grad_PN.T
            return Gradients(grad_ND * scale, None, (queries_ND * grad_ND).sum() if need_scale else None, None)
        tiles = Tiles(problem)
        if problem.triangular:
            grad_ND = triangle_backward(tiles, folded.rows_PN, grad_PN, folded.tiles)
            grad_scale = (queries_ND * grad_ND).sum() / 2 if need_scale else None
            return Gradients(grad_ND.mul_(scale), None, grad_scale, None)
        wanted = need_queries or need_scale, need_keys or itself, need_bias
        return scaled(problem, need_scale, *rows_backward(tiles, folded, grad_PN, grad_M, *wanted))


def scaled(
    problem: Problem, need_scale: bool, grad_ND: Tensor | None, grad_MD: Tensor | None, grad_bias_M: Tensor | None
) -> Gradients:
    """`Gradients` from G K, Gᵀ Q and Gᵀ 1, which are changed."""
    grad_scale = (problem.queries_ND * grad_ND).sum() if need_scale and grad_ND is not None else None
    if problem.keys_MD is None and grad_ND is not None and grad_MD is not None:
        grad_ND, grad_MD = grad_ND.add_(grad_MD), None
    for grad in (grad_ND, grad_MD):
        if grad is not None:
            grad.mul_(problem.scale)
    return Gradients(grad_ND, grad_MD, grad_scale, grad_bias_M)


def transposed(problem: Problem) -> Problem:
    """The same problem, one direction, with queries and keys in each other's place."""
    assert problem.bias_M is None and problem.keys_MD is not None and problem.at_least_N is None
    return replace(
        problem, queries_ND=problem.keys_MD, keys_MD=problem.queries_ND, pairs=problem.pairs.transposed(), both=False
    )


def rows_forward(tiles: Tiles, attend: bool, room: int = 0) -> Folded:
    """A strip of rows at a time. ``room``: elements of tiles whose exponentials are kept, of one power within the range."""
    problem, powers, bounded = tiles.problem, tiles.problem.powers, tiles.problem.bounded
    n, m = len(tiles.queries_ND), len(tiles.keys_MD)
    out_PN = tiles.queries_ND.new_empty(len(powers), n)
    columns_M = tiles.queries_ND.new_zeros(m) if problem.both else None
    attended_ND = torch.zeros_like(tiles.queries_ND) if attend else None
    scratch = tiles.new_buffer() if len(powers) > 1 else None
    keeping = Keeping(tiles, room)
    for rows in tiles.row_blocks():
        total_PR = torch.zeros_like(out_PN[:, rows])
        largest = total_PR.new_full(total_PR.shape[1:], 0 if bounded else -torch.inf)
        mean_key = None if attended_ND is None else attended_ND[rows]
        for cols in tiles.col_blocks(rows):
            keeping.prepare(rows, cols)
            tile = tiles.exponents(rows, cols)
            if problem.linear:
                total_PR[0] += tile.masked_fill_(tile == -torch.inf, 0).sum(1)
                continue
            if not bounded:
                now = torch.maximum(largest, tile.amax(1)) if tile.numel() else largest
                reference = now.masked_fill(now == -torch.inf, 0)  # nothing seen yet: avoid ∞ − ∞
                fade = (largest - reference).exp2_()
                total_PR *= torch.stack([fade**power for power in powers])
                if mean_key is not None:
                    mean_key.mul_(fade[:, None])
                tile.sub_(reference[:, None])
                largest = now
            weights = tiles.pairs.weights(rows, cols)
            for p, last in enumerate(powered(tile, powers, scratch)):
                total_PR[p] += (last if weights is None else last * weights).sum(1)
            if weights is not None and (columns_M is not None or mean_key is not None):
                last.mul_(weights)
            if columns_M is not None:
                columns_M[cols] += last.sum(0)
            keeping.add(last)
            if mean_key is not None:
                products.add_product(mean_key, tiles.operand(last), tiles.factors_MD[cols])
        if mean_key is not None:
            mean_key.div_(total_PR[0].masked_fill(total_PR[0] == 0, 1)[:, None])
        largest.masked_fill_(largest == -torch.inf, 0)
        for out, total, power in zip(out_PN[:, rows], total_PR, powers, strict=True):
            out.copy_(total if problem.linear else total.log2_().add_(largest, alpha=power))
    out_PN.mul_(1 / LOG2E)
    return Folded(
        out_PN, None if columns_M is None else columns_M.log2_().mul_(1 / LOG2E), attended_ND, tiles=keeping.tiles
    )


def rows_backward(
    tiles: Tiles,
    folded: Folded,
    grad_PN: Tensor,
    grad_M: Tensor | None,
    need_queries: bool,
    need_keys: bool,
    need_bias: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients before the factor ``scale``: G K, Gᵀ Q and Gᵀ 1, with G_ij = Σ_p p·g_pi·exp2(p·t_ij − lse2_pi) (+ columns)."""
    problem = tiles.problem
    weight_PN, reference_PN = _weights(problem, folded.rows_PN, grad_PN)
    weight_M = None
    if grad_M is not None and folded.columns_M is not None:
        weight_M = _weights(problem, folded.columns_M[None], grad_M[None])[0][0]
    # One power, one direction: G = E∘w_i, and the factor w goes to the thin operands instead of the tile.
    thin = len(problem.powers) == 1 and weight_M is None
    weighted_queries_ND = tiles.operand(tiles.queries_ND * weight_PN[0, :, None] if thin else tiles.queries_ND)
    grad_ND = torch.zeros_like(tiles.queries_ND) if need_queries else None
    grad_MD = torch.zeros_like(tiles.keys_MD) if need_keys else None
    grad_bias_M = torch.zeros_like(tiles.keys_MD[:, 0]) if need_bias else None
    scratch, kept = None if thin else tiles.new_buffer(), iter(folded.tiles)
    for rows in tiles.row_blocks():
        weighted_DR = weighted_queries_ND[rows].T.contiguous() if need_keys else None
        for cols in tiles.col_blocks(rows):
            weight_RC = None if weight_M is None else weight_M[cols]
            exponential = next(kept, None)
            if exponential is not None and weight_RC is not None and scratch is not None:
                tile = weighted(exponential, weight_PN[0, rows], weight_RC, scratch)
            elif problem.linear:
                tile = (tiles.exponents(rows, cols) > -torch.inf).to(weight_PN.dtype)
            elif thin:
                tile = tiles.exponents(rows, cols)
                tile = (tile if reference_PN is None else tile.sub_(reference_PN[0, rows, None])).exp2_()
            else:
                tile = tiles.exponents(rows, cols)
                tile = _gradient(problem, tile, weight_PN[:, rows], reference_PN, rows, weight_RC, scratch)
            weights = tiles.pairs.weights(rows, cols)
            if weights is not None:
                tile = tile.mul_(weights)
            if grad_bias_M is not None:
                grad_bias_M[cols] += tile.T.mv(weight_PN[0, rows]) if thin else tile.sum(0)
            tile = tiles.operand(tile)
            if grad_ND is not None:
                products.add_product(grad_ND[rows], tile, tiles.factors_MD[cols])
            if grad_MD is not None and weighted_DR is not None:
                products.add_transposed_product(grad_MD[cols], tile, weighted_DR)
    if grad_ND is not None and thin:
        grad_ND.mul_(weight_PN[0, :, None])
    return grad_ND, grad_MD, grad_bias_M


def _weights(problem: Problem, lse: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None]:
    """(w, reference): G = E∘w with E = exp2(p·t − reference); bounded: no reference, and w holds 2^−lse as well."""
    if problem.linear:
        return grad, None
    empty = lse == -torch.inf
    lse2 = (lse * LOG2E).masked_fill_(empty, 0)
    powers = grad.new_tensor(problem.powers)[:, None] if problem.powers != (1.0,) else 1
    weight = (grad * powers * (-lse2).exp2() if problem.bounded else grad * powers).masked_fill(empty, 0)
    return weight, None if problem.bounded else lse2


def _gradient(
    problem: Problem,
    tile: Tensor,
    weight_PR: Tensor,
    reference_PN: Tensor | None,
    rows: slice,
    weight_C: Tensor | None,
    scratch: Tensor | None,
) -> Tensor:
    """G on a tile of exponents t, for several powers or both directions."""
    assert scratch is not None
    room = scratch[: tile.numel()].view_as(tile)
    if weight_C is not None:
        return tile.exp2_().mul_(torch.add(weight_PR[0, :, None], weight_C, out=room))
    if reference_PN is None:
        first, second = powered(tile, problem.powers, scratch)
    else:
        (power0, power1), (reference0, reference1) = problem.powers, reference_PN[:, rows, None]
        first = torch.sub(torch.mul(tile, power0, out=room), reference0, out=room).exp2_()
        second = tile.mul_(power1).sub_(reference1).exp2_()
    return first.mul_(weight_PR[0, :, None]).addcmul_(second, weight_PR[1, :, None])


def triangle_forward(tiles: Tiles, room: int = 0) -> Folded:
    """The fold for S = Sᵀ, [P, N]: each tile above the diagonal is summed along its rows and along its columns.

    ``room``: elements of tiles whose exponentials are kept, of one power.
    """
    powers = tiles.problem.powers
    total_PN = tiles.queries_ND.new_zeros(len(powers), len(tiles.queries_ND))
    scratch = tiles.new_buffer() if len(powers) > 1 else None
    keeping = Keeping(tiles, room)
    for rows, cols in tiles.triangle():
        keeping.prepare(rows, cols)
        for total, tile in zip(total_PN, powered(tiles.exponents(rows, cols), powers, scratch), strict=True):
            total[rows] += tile.sum(1)
            if rows != cols:
                total[cols] += tile.sum(0)
        keeping.add(tile)
    return Folded(total_PN.log2_().mul_(1 / LOG2E), tiles=keeping.tiles)


def triangle_backward(tiles: Tiles, lse_PN: Tensor, grad_PN: Tensor, kept: Sequence[Tensor] = ()) -> Tensor:
    """(G + Gᵀ) Z, with G + Gᵀ = Σ_p E_p∘(w_pi + w_pj): symmetric again, so tiles above the diagonal suffice."""
    powers = tiles.problem.powers
    weight_PN, _ = _weights(tiles.problem, lse_PN, grad_PN)
    out = torch.zeros_like(tiles.queries_ND)
    scratch = tiles.new_buffer()
    second_scratch = tiles.new_buffer() if len(powers) > 1 else None
    strip, strip_DR = slice(0, 0), tiles.factors_MD[:0].T
    left = iter(kept)
    for rows, cols in tiles.triangle():
        exponential = next(left, None)
        if exponential is not None:
            tile = weighted(exponential, weight_PN[0, rows], weight_PN[0, cols], scratch)
        else:
            tile = tiles.exponents(rows, cols)
            room = scratch[: tile.numel()].view_as(tile)
            exponentials = list(powered(tile, powers, second_scratch))
            for each, weight_N in zip(exponentials, weight_PN, strict=True):
                each.mul_(torch.add(weight_N[rows, None], weight_N[cols], out=room))
            tile = exponentials[0] if len(exponentials) == 1 else exponentials[0].add_(exponentials[1])
        tile = tiles.operand(tile)
        products.add_product(out[rows], tile, tiles.factors_MD[cols])
        if rows != cols:
            if rows != strip:  # transposed once for all tiles of a strip
                strip, strip_DR = rows, tiles.factors_MD[rows].T.contiguous()
            products.add_transposed_product(out[cols], tile, strip_DR)
    return out


def _two_passes(
    problem: Problem,
    folded: Folded,
    grad_PN: Tensor,
    grad_M: Tensor | None,
    needs: tuple[bool, bool, bool, bool],
) -> Gradients:
    """Both directions when the exponentials need a maximum, which rows and columns do not share."""
    assert folded.columns_M is not None and grad_M is not None
    swapped = needs[1], needs[0], needs[2], False
    here = backward(replace(problem, both=False), folded, grad_PN, None, needs)
    there = backward(transposed(problem), Folded(folded.columns_M[None]), grad_M[None], None, swapped)
    return Gradients(
        _sum(here.queries_ND, there.keys_MD), _sum(here.keys_MD, there.queries_ND), _sum(here.scale, there.scale), None
    )


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return None if a is None or b is None else a + b
