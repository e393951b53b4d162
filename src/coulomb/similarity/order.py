"""Order statistics of each row, streamed: the k largest, the k-th largest, and what a diagnosis asks for. No gradient."""

import torch
from torch import Tensor

from coulomb.checked import abstract
from coulomb.similarity.problem import LOG2E, Problem, Tiles, blocks, full_precision

STRIP = 2**22  # elements of a strip of whole rows, when k is too large to carry the best from tile to tile


@torch.no_grad()
def topk(problem: Problem, k: int) -> tuple[Tensor, Tensor]:
    """The k largest s_ij in each row, descending, and their columns, [N, k]; −inf and −1 where fewer than k count."""
    n, m = problem.pairs.shape
    if abstract(problem.queries_ND):
        values_Nk = problem.queries_ND.new_empty(n, k)
        return values_Nk, torch.empty_like(values_Nk, dtype=torch.long)
    with full_precision(problem.queries_ND):
        tiles = Tiles(problem)
        # Merging costs k a tile: with many, take whole rows instead, fewer of them at a time.
        rows_at_once, cols_at_once = (tiles.tile, tiles.tile) if k <= tiles.tile // 4 else (max(1, STRIP // m), m)
        if cols_at_once == m:
            tiles.buffer = problem.queries_ND.new_empty(min(rows_at_once, n) * m)
        values_Nk = problem.queries_ND.new_full((n, k), -torch.inf)
        columns_Nk = torch.full((n, k), -1, dtype=torch.long, device=values_Nk.device)
        for rows in blocks(n, rows_at_once):
            found: tuple[Tensor, Tensor] | None = None
            for cols in blocks(m, cols_at_once):
                if problem.pairs.touches(rows, cols):
                    top, where = _largest(tiles.exponents(rows, cols), min(k, cols.stop - cols.start))
                    where = (where + cols.start).masked_fill_(top == -torch.inf, -1)
                    found = (top, where) if found is None else _merged(found, (top, where), k)
            if found is not None:
                width = found[0].shape[1]
                values_Nk[rows, :width], columns_Nk[rows, :width] = found
        return values_Nk.mul_(1 / LOG2E), columns_Nk


def _largest(tile: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return tile.max(1, keepdim=True) if k == 1 else tile.topk(k, dim=1)


def _merged(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], k: int) -> tuple[Tensor, Tensor]:
    values, columns = (torch.cat(pair, 1) for pair in zip(first, second, strict=True))
    best, choice = values.topk(min(k, values.shape[1]), dim=1)
    return best, columns.gather(1, choice)


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
        for rows in tiles.row_blocks():
            for cols in tiles.col_blocks(rows):
                tile = tiles.exponents(rows, cols)
                largest_N[rows] = torch.maximum(largest_N[rows], tile.amax(1))
                probability = (tile - reference_N[rows, None]).exp2_()
                weights = problem.pairs.weights(rows, cols)
                if weights is not None:
                    probability.mul_(weights)
                expected_N[rows] += probability.mul_(tile.masked_fill_(tile == -torch.inf, 0)).sum(1)
        return largest_N.mul_(1 / LOG2E), expected_N.mul_(1 / LOG2E)
