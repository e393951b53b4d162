"""Row folds of S = scale·Q·Kᵀ + bias, tile by tile; S is never stored. Plain torch, any device.

Memory is one or two tiles and a few vectors; the backward pass recomputes the tiles. Costs, with u = N·M·D flops (a
product is 2u): keys that are the queries 4u (S = Sᵀ: the upper triangle suffices), otherwise 8u, 6u if one side is frozen.

Everything is kept in powers of two: t = s·log2(e), exp s = exp2(t). When |t| is bounded by `SAFE_EXPONENT` no maximum is
needed, so that one exponential serves row i and column j alike; otherwise an online maximum keeps any magnitude exact.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from coulomb.similarity import products
from coulomb.similarity.pairs import Pairs

LOG2E = 1 / math.log(2)
TILE = 768  # a 768 × 768 fp32 tile is 2.25 MiB: two cores hold it in cache between the product, exp2 and the sums
LEAF = 384  # size of the blocks on the diagonal, the only place where the triangle's path computes an element twice
# Sums of up to 2^40 terms of 2^±80 are normal fp32 numbers, and so are the weights g·2^−lse of the backward pass.
SAFE_EXPONENT = {torch.float32: 80.0, torch.float64: 600.0}


def lse(
    queries_ND: Tensor, keys_MD: Tensor | None, scale: Tensor, bias_M: Tensor | None, pairs: Pairs, tile: int = TILE
) -> Tensor:
    """log Σ_j w_ij exp s_ij, [N]; −inf with zero gradient where no pair counts. ``keys_MD=None``: the queries."""
    bounded = largest_exponent(queries_ND, keys_MD, scale, bias_M) <= SAFE_EXPONENT[queries_ND.dtype]
    out: Tensor = StreamedLse.apply(queries_ND, keys_MD, scale, bias_M, pairs, tile, bounded)
    return out


def topk(
    queries_ND: Tensor, keys_MD: Tensor, scale: Tensor, bias_M: Tensor | None, pairs: Pairs, k: int, tile: int = TILE
) -> Tensor:
    """Columns of the k largest s_ij in each row, [N, k], −1 where fewer than k count. No gradient: gather the values anew."""
    with torch.no_grad(), full_precision(queries_ND):
        best_columns = queries_ND.new_full((len(queries_ND), k), -1, dtype=torch.long)
        tiles = Tiles(queries_ND, keys_MD, scale, bias_M, pairs, tile)
        for rows in blocks(len(queries_ND), tile):
            best = queries_ND.new_full((rows.stop - rows.start, k), -torch.inf)
            columns = best_columns[rows]
            for cols in blocks(len(keys_MD), tile):
                if pairs.touches(rows, cols):
                    scores = tiles.exponents(rows, cols)
                    top, where = scores.topk(min(k, scores.shape[1]), dim=1)
                    where = (where + cols.start).masked_fill_(top == -torch.inf, -1)
                    best, choice = torch.cat([best, top], 1).topk(k, dim=1)
                    columns = torch.cat([columns, where], 1).gather(1, choice)
            best_columns[rows] = columns
        return best_columns


def largest_exponent(queries_ND: Tensor, keys_MD: Tensor | None, scale: Tensor, bias_M: Tensor | None) -> float:
    """An upper bound of |s|·log2(e), by Cauchy-Schwarz; NaN if an input is."""
    with torch.no_grad():
        if queries_ND.numel() == 0 or (keys_MD is not None and keys_MD.numel() == 0):
            return 0.0
        longest = torch.linalg.vector_norm(queries_ND, dim=1).amax()
        longest_key = longest if keys_MD is None else torch.linalg.vector_norm(keys_MD, dim=1).amax()
        bound = scale.abs() * longest * longest_key
        return LOG2E * float(bound if bias_M is None else bound + bias_M.abs().amax())


class StreamedLse(torch.autograd.Function):
    """`lse` with its gradient by recomputation: P_ij = exp(s_ij − lse_i), and nothing of size N·M is kept for it."""

    @staticmethod
    def forward(
        queries_ND: Tensor,
        keys_MD: Tensor | None,
        scale: Tensor,
        bias_M: Tensor | None,
        pairs: Pairs,
        tile: int,
        bounded: bool,
    ) -> Tensor:
        """The lse of each row."""
        with full_precision(queries_ND):
            if keys_MD is None and bias_M is None and pairs.mask is None and bounded:
                lse2_N = triangle_forward(Tiles(queries_ND, queries_ND, scale, None, pairs, tile))
            else:
                keys_MD = queries_ND if keys_MD is None else keys_MD
                lse2_N = rows_forward(Tiles(queries_ND, keys_MD, scale, bias_M, pairs, tile), bounded)
            return lse2_N.mul_(1 / LOG2E)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the operands and the lse, nothing of size N·M."""
        queries_ND, keys_MD, scale, bias_M, ctx.pairs, ctx.tile, ctx.bounded = inputs
        ctx.save_for_backward(queries_ND, keys_MD, scale, bias_M, output)

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for the queries, the keys, the scale and the bias."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the streaming backend has no second derivative (create_graph=True, torch.func): use backend='dense'"
            )
        queries_ND, keys_MD, scale, bias_M, lse_N = ctx.saved_tensors
        need_queries, need_keys, need_scale, need_bias = ctx.needs_input_grad[:4]
        lse2_N = lse_N * LOG2E
        with full_precision(queries_ND):
            if keys_MD is None and bias_M is None and ctx.pairs.mask is None and ctx.bounded:
                grad_ND = triangle_backward(
                    Tiles(queries_ND, queries_ND, scale, None, ctx.pairs, ctx.tile), lse2_N, grad_N
                )
                grad_scale = (queries_ND * grad_ND).sum() / 2 if need_scale else None
                return grad_ND.mul_(scale), None, grad_scale, None, None, None, None
            tiles = Tiles(queries_ND, queries_ND if keys_MD is None else keys_MD, scale, bias_M, ctx.pairs, ctx.tile)
            grads = rows_backward(
                tiles, lse2_N, grad_N, ctx.bounded, need_queries or need_scale, need_keys or keys_MD is None, need_bias
            )
            grad_queries_ND, grad_keys_MD, grad_bias_M = grads
            grad_scale = (queries_ND * grad_queries_ND).sum() if need_scale and grad_queries_ND is not None else None
            if keys_MD is None and grad_queries_ND is not None and grad_keys_MD is not None:
                grad_queries_ND, grad_keys_MD = grad_queries_ND.add_(grad_keys_MD), None
            scaled = [None if grad is None else grad.mul_(scale) for grad in (grad_queries_ND, grad_keys_MD)]
            return scaled[0], scaled[1], grad_scale, grad_bias_M, None, None, None


class Tiles:
    """Tiles of t = s·log2(e), each computed into the same buffer."""

    def __init__(
        self, queries_ND: Tensor, keys_MD: Tensor, scale: Tensor, bias_M: Tensor | None, pairs: Pairs, tile: int
    ) -> None:
        self.queries_ND, self.keys_MD, self.pairs, self.tile = queries_ND, keys_MD, pairs, tile
        self.exponent_queries_ND = queries_ND * (scale * LOG2E)
        self.exponent_bias_M = None if bias_M is None else bias_M * LOG2E
        self.buffer = queries_ND.new_empty(min(tile, len(queries_ND)) * min(tile, len(keys_MD)))

    def exponents(self, rows: slice, cols: slice) -> Tensor:
        """t on one tile, −inf where a pair does not count. Valid until the next tile is asked for."""
        queries, keys = self.exponent_queries_ND[rows], self.keys_MD[cols]
        out = products.scores(queries, keys, self.buffer)
        if self.exponent_bias_M is not None:
            out.add_(self.exponent_bias_M[cols])
        hidden = self.pairs.hidden(rows, cols)
        return out if hidden is None else out.masked_fill_(hidden, -torch.inf)

    def exponentials(self, rows: slice, cols: slice, reference: Tensor | None = None) -> Tensor:
        """w·exp2(t − reference_i) on one tile."""
        out = self.exponents(rows, cols)
        if reference is not None:
            out.sub_(reference[:, None])
        out.exp2_()
        weights = self.pairs.weights(rows, cols)
        return out if weights is None else out.mul_(weights)

    def row_blocks(self) -> Iterator[slice]:
        """Strips of queries."""
        return blocks(len(self.queries_ND), self.tile)

    def col_blocks(self, rows: slice) -> Iterator[slice]:
        """Blocks of keys with a pair that counts."""
        return (cols for cols in blocks(len(self.keys_MD), self.tile) if self.pairs.touches(rows, cols))

    def triangle(self) -> Iterator[tuple[slice, slice]]:
        """Tiles on and above the diagonal with a pair that counts."""
        return (tile for tile in triangle(0, len(self.queries_ND), self.tile) if self.pairs.touches(*tile))


def rows_forward(tiles: Tiles, bounded: bool) -> Tensor:
    """log2 Σ_j exp2(t_ij), a strip of rows at a time."""
    out = torch.empty_like(tiles.queries_ND[:, :1]).squeeze(1)
    for rows in tiles.row_blocks():
        total = torch.zeros_like(out[rows])
        if bounded:
            for cols in tiles.col_blocks(rows):
                total += tiles.exponentials(rows, cols).sum(1)
            out[rows] = total.log2_()
            continue
        largest = torch.full_like(total, -torch.inf)
        for cols in tiles.col_blocks(rows):
            tile = tiles.exponents(rows, cols)
            now = torch.maximum(largest, tile.amax(1))
            reference = now.masked_fill(now == -torch.inf, 0)  # nothing seen yet: avoid ∞ − ∞
            total *= (largest - reference).exp2_()
            tile.sub_(reference[:, None]).exp2_()
            weights = tiles.pairs.weights(rows, cols)
            total += tile.sum(1) if weights is None else tile.mul_(weights).sum(1)
            largest = now
        out[rows] = total.log2_().add_(largest.masked_fill_(total == -torch.inf, 0))
    return out


def rows_backward(
    tiles: Tiles, lse2_N: Tensor, grad_N: Tensor, bounded: bool, need_queries: bool, need_keys: bool, need_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients before the factor ``scale``: G K, Gᵀ Q and Gᵀ 1, with G_ij = g_i exp2(t_ij − lse2_i)."""
    empty = lse2_N == -torch.inf
    reference_N = None if bounded else lse2_N.masked_fill(empty, 0)
    # Bounded: G = E∘w_i with w = g·exp2(−lse2), and the factor w goes to the thin operands instead of the tile.
    weight_N = (grad_N * (-lse2_N).exp2() if bounded else grad_N).masked_fill(empty, 0)
    weighted_queries_ND = tiles.queries_ND * weight_N[:, None]
    grad_queries_ND = torch.zeros_like(tiles.queries_ND) if need_queries else None
    grad_keys_MD = torch.zeros_like(tiles.keys_MD) if need_keys else None
    grad_bias_M = torch.zeros_like(tiles.keys_MD[:, 0]) if need_bias else None
    for rows in tiles.row_blocks():
        for cols in tiles.col_blocks(rows):
            tile = tiles.exponentials(rows, cols, None if reference_N is None else reference_N[rows])
            if grad_queries_ND is not None:
                products.add_product(grad_queries_ND[rows], tile, tiles.keys_MD[cols])
            if grad_keys_MD is not None:
                products.add_transposed_product(grad_keys_MD[cols], tile, weighted_queries_ND[rows])
            if grad_bias_M is not None:
                grad_bias_M[cols].addmv_(tile.T, weight_N[rows])
    if grad_queries_ND is not None:
        grad_queries_ND.mul_(weight_N[:, None])
    return grad_queries_ND, grad_keys_MD, grad_bias_M


def triangle_forward(tiles: Tiles) -> Tensor:
    """log2 Σ_j exp2(t_ij) for S = Sᵀ: each tile above the diagonal is summed along its rows and along its columns."""
    total = tiles.queries_ND.new_zeros(len(tiles.queries_ND))
    for rows, cols in tiles.triangle():
        tile = tiles.exponentials(rows, cols)
        total[rows] += tile.sum(1)
        if rows != cols:
            total[cols] += tile.sum(0)
    return total.log2_()


def triangle_backward(tiles: Tiles, lse2_N: Tensor, grad_N: Tensor) -> Tensor:
    """(G + Gᵀ) Z, with G + Gᵀ = E∘(w_i + w_j), w = g·exp2(−lse2): symmetric again, so tiles above the diagonal suffice."""
    weight_N = (grad_N * (-lse2_N).exp2()).masked_fill_(lse2_N == -torch.inf, 0)
    out = torch.zeros_like(tiles.queries_ND)
    scratch = torch.empty_like(tiles.buffer)
    for rows, cols in tiles.triangle():
        tile = tiles.exponentials(rows, cols)
        both = torch.add(weight_N[rows, None], weight_N[cols], out=scratch[: tile.numel()].view_as(tile))
        tile.mul_(both)
        products.add_product(out[rows], tile, tiles.keys_MD[cols])
        if rows != cols:
            products.add_transposed_product(out[cols], tile, tiles.keys_MD[rows])
    return out


def blocks(length: int, size: int) -> Iterator[slice]:
    """0..length in slices of at most ``size``."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def triangle(low: int, high: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover each pair low ≤ i ≤ j < high once; blocks on the diagonal (rows == cols) are small."""
    if high - low <= min(tile, LEAF):
        if low < high:
            yield slice(low, high), slice(low, high)
        return
    middle = low + max(1, (high - low) // (2 * tile)) * tile if high - low > tile else (low + high) // 2
    yield from triangle(low, middle, tile)
    for rows in blocks(middle - low, tile):
        for cols in blocks(high - middle, tile):
            yield (
                slice(low + rows.start, low + rows.stop),
                slice(middle + cols.start, middle + cols.stop),
            )
    yield from triangle(middle, high, tile)


def full_precision(like: Tensor) -> torch.autocast:
    """Autocast off: the operands are already in the precision that they need."""
    return torch.autocast(like.device.type, enabled=False)
