"""Near-duplicates: all pairs of rows whose cosine is at least a threshold, or the strongest of each row. Exact in fp64.

Products are computed tile by tile in the precision that is fastest on this processor, and every pair that might reach the
threshold, by a bound on the rounding error, is computed again in fp64. Memory is linear in the number of rows, also
if all rows are equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from coulomb.ground import machine
from coulomb.ground.errors import InputError
from coulomb.metrics.rows import TILE, blocks, check_rows, cosines, unit_rows
from coulomb.similarity.products import product


@dataclass
class Products:
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

    def crowded(self, tile: Tensor, rows: np.ndarray, columns: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of a tile that are at least ``low``: where they are many, the ``most`` largest of each.

        Args:
            tile: products of the rows of ``x`` at ``rows`` and of ``keys`` at ``columns``, −2 where a pair does not count.
            rows: positions [R].
            columns: positions [C].
            most: pairs of a row of the tile, and of a column.
        """
        hit = (tile.amax(1).float() >= self.low).nonzero()[:, 0]
        crowd = hit[(tile[hit] >= self.low).sum(1) > most]
        sparse = hit[~torch.isin(hit, crowd)]
        r, c = self.close(tile[sparse])
        r = sparse.numpy()[r]
        if not len(crowd):
            return r, c
        values = tile[crowd].float()
        if self.half:  # the largest of many close values, which bfloat16 cannot order
            exact = product(unit_rows(self.x, rows[crowd.numpy()]), unit_rows(self.keys, columns))
            values = torch.where(values == -2.0, values, exact)
        largest = torch.zeros(values.shape, dtype=torch.bool)
        largest.scatter_(1, values.topk(min(most, values.shape[1]), dim=1).indices, True)
        largest.scatter_(0, values.topk(min(most, values.shape[0]), dim=0).indices, True)
        more, columns = np.nonzero((largest & (values >= self.low)).numpy())
        return np.concatenate([r, crowd.numpy()[more]]), np.concatenate([c, columns])


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
    engine = Products(x, others, above)
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


@dataclass(frozen=True)
class Pairs:
    """Pairs of similar rows, the most similar first.

    Attributes:
        rows: the first row of each pair, int64 [P].
        columns: the second, int64 [P].
        cosines: float64 [P].
        own: whether the pair is among the strongest of its first and of its second row, bool [P,2]; one of both always is.
    """

    rows: np.ndarray
    columns: np.ndarray
    cosines: np.ndarray
    own: np.ndarray

    def strongest(self, count: int, most: int) -> "Pairs":
        """Returns the pairs that are among the ``most`` strongest of one of their rows 0 … ``count`` − 1."""
        ends = np.concatenate([self.rows, self.columns])
        others = np.concatenate([self.columns, self.rows])
        order = np.lexsort((others, -np.tile(self.cosines, 2), ends))
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(ends, minlength=count), out=starts[1:])
        among = np.empty(len(ends), bool)
        among[order] = np.arange(len(ends)) - starts[ends[order]] < most
        own = among.reshape(2, -1).T
        kept = np.flatnonzero(own.any(1))
        kept = kept[np.lexsort((self.columns[kept], self.rows[kept], -self.cosines[kept]))]
        return Pairs(self.rows[kept], self.columns[kept], self.cosines[kept], own[kept])


@torch.no_grad()
def strongest_pairs(x: np.ndarray, above: float, order: np.ndarray, most: int) -> Pairs:
    """Returns the pairs with a cosine of at least ``above`` that are among the ``most`` strongest of one of both rows.

    Rows of pairs are positions in ``order``, which also decides between equal cosines: the earlier row counts as more
    similar. Memory is linear in the number of rows, for any number of similar pairs. At most N²/2 products.

    Args:
        x: features [N,D] that `check_rows` accepts.
        above: the least cosine.
        order: positions in ``x`` of the rows to compare.
        most: pairs per row.
    """
    engine, limit = Products(x, x, above), max(2**17, 4 * most * len(order))
    none = np.empty(0, np.int64)
    found, count = [Pairs(none, none, np.empty(0), np.empty((0, 2), bool))], 0
    for block in blocks(len(order)):
        queries = engine.operand(x, order[block])
        for part in blocks(len(order) - block.start, TILE):
            tile = slice(block.start + part.start, block.start + part.stop)
            similar = product(queries, engine.operand(x, order[tile]))
            if tile.start < block.stop:  # each pair once
                later = np.arange(tile.start, tile.stop) > np.arange(block.start, block.stop)[:, None]
                similar.masked_fill_(torch.from_numpy(~later), -2.0)
            rows, columns = engine.crowded(similar, order[block], order[tile], most)
            rows, columns = rows + block.start, columns + tile.start
            values = cosines(x, order[rows], x, order[columns])
            near = values >= above
            found.append(Pairs(rows[near], columns[near], values[near], np.empty((near.sum(), 2), bool)))
            count += int(near.sum())
            if count > limit:
                found = [_joined(found).strongest(len(order), most)]
                count = len(found[0].rows)
    return _joined(found).strongest(len(order), most)


def _joined(parts: list[Pairs]) -> Pairs:
    return Pairs(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.cosines for part in parts]),
        np.concatenate([part.own for part in parts]),
    )


@torch.no_grad()
def nearest_above(x: np.ndarray, keys: np.ndarray, above: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Returns the most similar row of ``keys`` [M,D] of each row of ``x`` [N,D], and their cosine in fp64.

    The position is −1 and the cosine −inf if no key reaches ``above``: of test images as ``keys``, the training images
    that leak. Raises `InputError` as `similar_pairs` does.
    """
    check_rows(x)
    check_rows(keys, "keys", like=x)
    engine = Products(x, keys, above)
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

    def improve(self, engine: Products, queries: Tensor, columns: np.ndarray) -> None:
        """Compares the rows with the keys at ``columns``."""
        tile = product(queries, engine.operand(engine.keys, columns))
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
