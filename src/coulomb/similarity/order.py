"""Order statistics of each row, tile by tile: the k largest, and the statistics of a diagnosis. Without gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coulomb.similarity import policy
from coulomb.similarity.products import full_precision
from coulomb.similarity.tiles import LOG2E, Problem, Tiles, slices


@torch.no_grad()
def topk(problem: Problem, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij in each row, descending, and their columns, [N, k]; −inf and −1 where fewer than k pairs count."""
    n, m = problem.pairs.shape
    with full_precision(problem.queries_ND):
        tiles = Tiles(problem, half=False)
        strips = None
        if k > tiles.tile // 4:  # merging costs k per tile: take fewer rows, but complete ones
            strips = [*slices(n, max(1, policy.current().strip // max(1, m)))], [*slices(m, m)]
        values_LNk = problem.queries_ND.new_full((tiles.lanes, n, k), -torch.inf)
        columns_LNk = torch.full_like(values_LNk, -1, dtype=torch.long)

        def visit(rows: slice, cols: slice, lane: int) -> None:
            best, columns = values_LNk[lane, rows], columns_LNk[lane, rows]
            top, where = _largest(tiles.exponents(rows, cols), min(k, cols.stop - cols.start))
            where = (where + cols.start).masked_fill_(top == -torch.inf, -1)
            values, choice = _largest(torch.cat([best, top], 1), k)
            columns.copy_(torch.cat([columns, where], 1).gather(1, choice))
            best.copy_(values)

        tiles.visit(visit, strips=strips)
        values_Nk, choice = _largest(torch.cat([*values_LNk], 1), k) if tiles.lanes > 1 else (values_LNk[0], None)
        columns_Nk = columns_LNk[0] if choice is None else torch.cat([*columns_LNk], 1).gather(1, choice)
        return values_Nk.mul_(1 / LOG2E), columns_Nk


def _largest(tile: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return tile.max(1, keepdim=True) if k == 1 else tile.topk(k, dim=1)


@dataclass(frozen=True)
class RowStatistics:
    """Statistics of the softmax of each row, without gradients.

    Attributes:
        largest: max_j s_ij, [N]; −inf where no pair counts.
        expected: Σ_j p_ij s_ij with p = softmax, [N], which is scale · ∂lse/∂scale; 0 where no pair counts.
        effective_count: exp(entropy of p) = exp(lse − expected), [N]: from 1 (one pair holds all) to the count (all equal).

    >>> seen = Similarity(torch.eye(3)).statistics("others")
    >>> seen.effective_count  # two other rows, equally similar
    tensor([2., 2., 2.])
    """

    largest: Tensor
    expected: Tensor
    effective_count: Tensor


@torch.no_grad()
def largest_and_expected(problem: Problem, lse_N: Tensor) -> tuple[Tensor, Tensor]:
    """(max_j s_ij, Σ_j softmax(s_i)_j s_ij), each [N], in one pass; −inf and 0 where no pair counts."""
    with full_precision(problem.queries_ND):
        tiles = Tiles(problem)
        largest_LN = lse_N.new_full((tiles.lanes, len(lse_N)), -torch.inf)
        expected_LN = torch.zeros_like(largest_LN)
        reference_N = (lse_N * LOG2E).masked_fill_(lse_N == -torch.inf, 0)

        def visit(rows: slice, cols: slice, lane: int) -> None:
            tile = tiles.exponents(rows, cols)
            largest_LN[lane, rows] = torch.maximum(largest_LN[lane, rows], tile.amax(1))
            probability = torch.sub(tile, reference_N[rows, None], out=tiles.buffer(tile.shape, "probability")).exp2_()
            weights = problem.pairs.weights(rows, cols)
            if weights is not None:
                probability.mul_(weights)
            expected_LN[lane, rows] += probability.mul_(
                tile.nan_to_num_(nan=torch.nan, posinf=torch.inf, neginf=0)
            ).sum(1)

        tiles.visit(visit)
        return largest_LN.amax(0).mul_(1 / LOG2E), expected_LN.sum(0).mul_(1 / LOG2E)
