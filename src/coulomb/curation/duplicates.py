"""Near-duplicates: all pairs of rows whose cosine is at least a threshold, and groups of them. Exact in fp64.

Products are computed tile by tile in the precision that is fastest on this processor, and every pair that might reach the
threshold, by a bound on the rounding error, is computed again in fp64. Memory is linear in the number of rows, also
if all rows are equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from coulomb import machine
from coulomb.curation.rows import TILE, blocks, check_rows, cosines, unit_rows
from coulomb.errors import InputError
from coulomb.similarity.products import product


@dataclass(frozen=True)
class Groups:
    """Groups of similar rows.

    Attributes:
        representative: position of the representative of each row's group, int64 [N]; a row that resembles no representative
            before it is its own.
        similarity: cosine with the representative, float64 [N]; 1 for representatives.
    """

    representative: np.ndarray
    similarity: np.ndarray

    def lists(self) -> list[tuple[int, np.ndarray]]:
        """Returns (representative, members in descending order of similarity) of groups of two or more, largest first."""
        members = np.flatnonzero(self.representative != np.arange(len(self.representative)))
        members = members[np.lexsort((members, -self.similarity[members], self.representative[members]))]
        if not len(members):
            return []
        heads, starts = np.unique(self.representative[members], return_index=True)
        groups = list(zip(heads.tolist(), np.split(members, starts[1:]), strict=True))
        return sorted(groups, key=lambda group: (-len(group[1]), -self.similarity[group[1][0]], group[0]))


@dataclass
class _Products:
    """Products of unit rows of ``x`` and ``keys``, each within ``margin`` of the cosine in fp64."""

    x: np.ndarray
    keys: np.ndarray
    above: float
    half: bool = field(default_factory=lambda: machine.FAST_BFLOAT16)
    margin: float = field(init=False)
    low: float = field(init=False)

    def __post_init__(self) -> None:
        if not 0 < self.above <= 1:
            raise InputError(f"above={self.above}: must be a cosine in (0, 1].")
        # Σ|a||b| ≤ 1 for rows of length 1: D roundings of 2⁻²⁴ in fp32; in bf16 (2⁻⁸) two operands and the result as well.
        self.margin = (self.x.shape[1] + 8) * 2.0**-23 + (3.1 * 2.0**-8 if self.half else 0.0)
        self.low = self.above - self.margin

    def operand(self, x: np.ndarray, rows: slice | np.ndarray) -> Tensor:
        """Unit rows in the precision of the products."""
        return unit_rows(x, rows).to(torch.bfloat16 if self.half else torch.float32)

    def close(self, tile: Tensor, at_least: Tensor | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of a tile that are at least ``low``, and ``at_least`` [R] if given."""
        tops = tile.amax(1).float()  # a reduction is a hundred times as fast as the search for single elements
        hit = (tops >= self.low if at_least is None else tops >= at_least.clamp_min(self.low)).nonzero()[:, 0]
        if not len(hit):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        least = torch.full((len(hit),), self.low) if at_least is None else at_least[hit].clamp_min(self.low)
        rows, columns = np.nonzero((tile[hit].float() >= least[:, None]).numpy())
        return hit.numpy()[rows], columns


@torch.no_grad()
def similar_pairs(
    x: np.ndarray, above: float, keys: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (rows, columns, cosines) of all pairs with a cosine of at least ``above``, some at a time.

    Among the rows of ``x`` [N,D] every pair is yielded once, with row < column; with ``keys`` [M,D], pairs of a row of ``x``
    and a row of ``keys``. Which pairs are yielded is decided in fp64. O(N·M·D) time, half of that without ``keys``; memory
    for one tile of 4096 × 1024 similarities and its pairs. Rows of zeros resemble nothing.

    Raises:
        InputError: ``above`` is outside (0, 1], the widths differ, NaN or infinite values.
    """
    check_rows(x)
    others = x if keys is None else keys
    if keys is not None:
        check_rows(keys, "keys", like=x)
    engine = _Products(x, others, above)
    for block in blocks(len(x)):
        queries = engine.operand(x, block)
        first = block.start if keys is None else 0
        for tile in blocks(len(others) - first, TILE):
            start = first + tile.start
            rows, columns = engine.close(product(queries, engine.operand(others, slice(start, first + tile.stop))))
            rows, columns = rows + block.start, columns + start
            if keys is None:
                once = rows < columns
                rows, columns = rows[once], columns[once]
            values = cosines(x, rows, others, columns)
            near = values >= above
            if near.any():
                yield rows[near], columns[near], values[near]


@torch.no_grad()
def duplicate_groups(x: np.ndarray, above: float = 0.95, order: np.ndarray | None = None) -> Groups:
    """Groups in which every member has a cosine of at least ``above`` with the representative.

    Rows are visited in ``order``, best first (`best_first`). A row that resembles no representative so far becomes one;
    any other row joins the most similar representative (of equal ones, the better). So the representative is the best row
    of its group, no two representatives resemble each other, and no chain of neighbours joins rows that are not alike. The
    groups depend on ``order`` and not on the order of the rows.

    Each row is compared only with representatives, at most N²/2 products; memory is linear in N for any number of
    similar pairs. Decisions are made in fp64.

    Args:
        x: features [N,D]; a memory-mapped array is read in blocks. Rows of zeros resemble nothing.
        above: the least cosine.
        order: positions of the rows to compare, best first; others stay alone. Default: all, as they are stored.

    Raises:
        InputError: ``above`` is outside (0, 1], a position in ``order`` is repeated or out of range, NaN or infinite values.
    """
    check_rows(x)
    engine = _Products(x, x, above)
    order = np.arange(len(x)) if order is None else np.asarray(order, np.int64)
    if (
        order.ndim != 1
        or len(np.unique(order)) != len(order)
        or (len(order) and not 0 <= order.min() <= order.max() < len(x))
    ):
        raise InputError(f"order: must be different positions from 0 to {len(x) - 1}.")
    heads = np.empty(len(order), np.int64)  # representatives in ``order``
    found = 0
    groups = Groups(np.arange(len(x)), np.ones(len(x)))
    for block in blocks(len(order)):
        rows = order[block]
        queries = engine.operand(x, rows)
        best = _Best(rows)
        for tile in blocks(found, TILE):
            best.improve(engine, queries, heads[tile])
        new = _independent(engine, queries, rows, best.cosine < above)
        best.cosine[new], best.column[new] = 1.0, rows[new]
        if len(new) and len(new) < len(rows):
            for tile in blocks(len(new), TILE):
                best.improve(engine, queries, rows[new[tile]], before=new[tile])
        groups.representative[rows], groups.similarity[rows] = best.column, best.cosine
        heads[found : found + len(new)] = rows[new]
        found += len(new)
    return groups


@torch.no_grad()
def nearest_above(x: np.ndarray, keys: np.ndarray, above: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Returns the most similar row of ``keys`` [M,D] of each row of ``x`` [N,D], and their cosine in fp64.

    The position is −1 and the cosine −inf if no key reaches ``above``: of test images as ``keys``, the training images
    that leak. Raises `InputError` as `similar_pairs` does.
    """
    check_rows(x)
    check_rows(keys, "keys", like=x)
    engine = _Products(x, keys, above)
    columns, values = np.empty(len(x), np.int64), np.empty(len(x))
    for block in blocks(len(x)):
        rows = np.arange(block.start, block.stop)
        queries, best = engine.operand(x, block), _Best(rows)
        for tile in blocks(len(keys), TILE):
            best.improve(engine, queries, np.arange(tile.start, tile.stop))
        columns[block], values[block] = best.column, best.cosine
    return columns, values


class _Best:
    """The most similar key so far of each row of a block: ``column`` (−1: none reaches the threshold) and ``cosine``."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows
        self.column = np.full(len(rows), -1, np.int64)
        self.cosine = np.full(len(rows), -np.inf)

    def improve(
        self, engine: _Products, queries: Tensor, columns: np.ndarray, before: np.ndarray | None = None
    ) -> None:
        """Compares the rows with the keys at ``columns``; with ``before`` [C], row r only with keys of before < r."""
        tile = product(queries, engine.operand(engine.keys, columns))
        if before is not None:
            tile.masked_fill_(torch.from_numpy(before[None] >= np.arange(len(self.rows))[:, None]), -2.0)
        # The best of a row is within 2·margin of the largest product, and must not be below the best of earlier tiles.
        least = torch.maximum(
            tile.amax(1).float() - 2 * engine.margin, torch.from_numpy(self.cosine).float() - 2 * engine.margin
        )
        r, c = engine.close(tile, least)
        values = cosines(engine.x, self.rows[r], engine.keys, columns[c])
        better = (values >= engine.above) & (values > self.cosine[r])
        r, c, values = r[better], c[better], values[better]
        ranked = np.lexsort((c, -values, r))
        r, first = np.unique(r[ranked], return_index=True)
        self.column[r], self.cosine[r] = columns[c[ranked][first]], values[ranked][first]


def _independent(engine: _Products, queries: Tensor, rows: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Positions in a block that become representatives, in order: those that are ``free`` and resemble no earlier one."""
    candidates = np.flatnonzero(free)
    operand = queries[torch.from_numpy(candidates)]
    chosen = np.zeros(len(candidates), bool)
    for part in blocks(len(candidates), TILE):
        close = (product(operand[part], operand[: part.stop]).float() >= engine.low).numpy()
        for position in range(part.start, part.stop):
            near = np.flatnonzero(close[position - part.start, :position] & chosen[:position])
            own = np.repeat(rows[candidates[position]], len(near))
            chosen[position] = (cosines(engine.x, own, engine.x, rows[candidates[near]]) < engine.above).all()
    return candidates[chosen]


def best_first(pixels: np.ndarray, sizes: np.ndarray, ids: list[str]) -> np.ndarray:
    """Returns the order of images by resolution (pixels), then size in bytes, then id: the largest first, ids ascending."""
    by_id = np.empty(len(ids), np.int64)
    by_id[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return np.lexsort((by_id, -np.asarray(sizes, np.int64), -np.asarray(pixels, np.int64)))
