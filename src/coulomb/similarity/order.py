"""Order statistics of each row, tile by tile: the k largest, and the statistics of a diagnosis. Without gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coulomb.checked import abstract
from coulomb.similarity import policy
from coulomb.similarity.products import full_precision
from coulomb.similarity.tiles import LOG2E, Problem, Tiles, slices


@torch.no_grad()
def topk(problem: Problem, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij in each row, descending, and their columns, [N, k]; −inf and −1 where fewer than k pairs count."""
    n, m = problem.pairs.shape
    if abstract(problem.queries_ND):
        values_Nk = problem.queries_ND.new_empty(n, k)
        return values_Nk, torch.empty_like(values_Nk, dtype=torch.long)
    with full_precision(problem.queries_ND):
        tiles = Tiles(problem, half=False)
        height, width = tiles.tile, tiles.tile
        if k > tiles.tile // 4:  # merging costs k per tile: take fewer rows, but complete ones
            height, width = max(1, policy.current().strip // m), m
        values_Nk = problem.queries_ND.new_full((n, k), -torch.inf)
        columns_Nk = torch.full((n, k), -1, dtype=torch.long, device=values_Nk.device)
        for rows in slices(n, height):
            values, columns = values_Nk[rows, :0], columns_Nk[rows, :0]
            for cols in slices(m, width):
                if problem.pairs.touches(rows, cols):
                    top, where = _largest(tiles.exponents(rows, cols), min(k, cols.stop - cols.start))
                    where = (where + cols.start).masked_fill_(top == -torch.inf, -1)
                    values, choice = _largest(torch.cat([values, top], 1), min(k, values.shape[1] + top.shape[1]))
                    columns = torch.cat([columns, where], 1).gather(1, choice)
            values_Nk[rows, : values.shape[1]], columns_Nk[rows, : values.shape[1]] = values, columns
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
    """

    largest: Tensor
    expected: Tensor
    effective_count: Tensor


@torch.no_grad()
def largest_and_expected(problem: Problem, lse_N: Tensor) -> tuple[Tensor, Tensor]:
    """(max_j s_ij, Σ_j softmax(s_i)_j s_ij), each [N], in one pass; −inf and 0 where no pair counts."""
    if abstract(problem.queries_ND):
        return torch.empty_like(lse_N), torch.empty_like(lse_N)
    with full_precision(problem.queries_ND):
        tiles = Tiles(problem)
        largest_N = torch.full_like(lse_N, -torch.inf)
        expected_N = torch.zeros_like(lse_N)
        reference_N = (lse_N * LOG2E).masked_fill_(lse_N == -torch.inf, 0)
        for rows in tiles.row_strips():
            for cols in tiles.column_tiles(rows):
                tile = tiles.exponents(rows, cols)
                largest_N[rows] = torch.maximum(largest_N[rows], tile.amax(1))
                probability = (tile - reference_N[rows, None]).exp2_()
                weights = problem.pairs.weights(rows, cols)
                if weights is not None:
                    probability.mul_(weights)
                expected_N[rows] += probability.mul_(tile.nan_to_num_(nan=torch.nan, posinf=torch.inf, neginf=0)).sum(1)
        return largest_N.mul_(1 / LOG2E), expected_N.mul_(1 / LOG2E)
