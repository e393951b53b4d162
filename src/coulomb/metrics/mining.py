"""Hard negatives: for each row of pairs, the cells of the second column that are most similar without being right."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.matching import first_places
from coulomb.metrics.nearest import nearest
from coulomb.metrics.rows import as_tensor, blocks, check_rows, cosines, unit_rows

QUERIES = 2**14  # rows per search
SPARE = 8  # keys that the first search returns beyond those that are wanted, in place of cells that are right


@dataclass(frozen=True)
class HardNegatives:
    """The result of `hard_negatives`.

    Attributes:
        rows: a row of the table whose second cell is the negative, int64 [N, count], the most similar first; −1 where a row
            has fewer.
        cosines: float64 [N, count], NaN where a row has fewer.
        positive: the cosine of each row's first cell and the best of its right cells, float64 [N].
        short: how many rows have fewer than ``count`` negatives.

    >>> cells = np.eye(3) + 0.1
    >>> hard_negatives(cells, cells, np.arange(3)).rows.shape
    (3, 1)
    """

    rows: np.ndarray
    cosines: np.ndarray
    positive: np.ndarray
    short: int


@torch.no_grad()
def hard_negatives(
    first: np.ndarray,
    second: np.ndarray,
    ids: np.ndarray,
    *,
    count: int = 1,
    margin: float | None = 0.05,
    relative: float | None = None,
    skip: int = 0,
) -> HardNegatives:
    """Returns for each row the ``count`` most similar second cells that are not right, among all distinct second cells.

    With s⁺ the cosine of the row's first cell and the best second cell that it is paired with, cell j is a negative if

        s_j < s⁺ − margin        and        s_j < s⁺ − relative·|s⁺|

    so that cells that are closer, which may be right without being marked, are left out (Moreira et al., 2024). Exact: all
    cells are searched, and the limits are decided in fp64. O(N·M·D) time for M distinct second cells; memory for the
    result and some blocks, whatever the number of rows that are right.

    As ``mine_hard_negatives`` of sentence-transformers with two differences: its margins refer to the WORST right cell of a
    row, and it searches a limited number of neighbors (``range_max``, by default 10 per negative with a margin), so that
    rows whose neighbors are all too close get none. ``skip`` is its ``range_min``.

    Args:
        first: embeddings of the first cell of each row, floats [N, D]; may be memory-mapped. Rows are pairs.
        second: embeddings of the second cell of each row, [N, D].
        ids: int64 [N, C], an id per cell: column 0 of the first cells, column 1 of the second, further columns of anything
            that makes two rows equal. A cell is right for a row if it occurs in a row with an equal id in any column. Or
            int64 [N], one id per row, where all cells differ: rows with equal ids are right for each other.
        count: negatives per row.
        margin: absolute; None for no limit by it.
        relative: relative to |s⁺|; None for no limit by it.
        skip: how many of the most similar negatives within the limits are left out.

    Raises:
        InputError: shapes that do not match, features that are not finite, an option out of range.

    Shape:
        first, second: [N, D].
        ids: [N, C] or [N].

    >>> angle = np.array([0.0, 1.0, 1.5])
    >>> cells = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> hard_negatives(cells, cells, np.arange(3)).rows.tolist()
    [[1], [2], [1]]
    """
    check_rows(first, "first")
    check_rows(second, "second", like=first)
    table = _ids(np.asarray(ids), len(first), len(second))
    if count < 1 or skip < 0:
        raise InputError(f"count={count}, skip={skip}: must be at least 1 and at least 0.")
    for name, value in (("margin", margin), ("relative", relative)):
        if value is not None and not 0 <= value < 2:
            raise InputError(f"{name}={value}: must be from 0 to less than 2, or None.")
    query_rows, query = first_places(np.unique(np.delete(table, 1, axis=1), axis=0, return_inverse=True)[1].reshape(-1))
    key_rows, key = first_places(table[:, 1])
    search = _Mining(first, second, query_rows, key_rows, _Right(table, query_rows, key, len(key_rows)))
    positive = np.full(len(query_rows), -np.inf)
    every = np.arange(len(first))
    np.maximum.at(positive, query, cosines(first, every, second, every))
    limit = np.full(len(query_rows), np.inf)
    if margin is not None:
        limit = np.minimum(limit, positive - margin)
    if relative is not None:
        limit = np.minimum(limit, positive - relative * np.abs(positive))
    keys, values = np.full((len(query_rows), count), -1), np.full((len(query_rows), count), np.nan)
    for part in blocks(len(query_rows), QUERIES):
        chosen = np.arange(part.start, part.stop)
        keys[part], values[part] = (each[:, skip:] for each in search.nearest_wrong(chosen, limit, skip + count))
    rows = np.where(keys >= 0, key_rows[keys], -1)
    return HardNegatives(rows[query], values[query], positive[query], int((rows[query, -1] < 0).sum()))


def _ids(ids: np.ndarray, first: int, second: int) -> np.ndarray:
    """Returns ids [N, C ≥ 2] numbered from 0 in each column."""
    if first != second or ids.ndim not in (1, 2) or len(ids) != first or ids.dtype.kind not in "iu":
        raise InputError(
            f"first has {first} rows, second {second}, ids={ids.dtype}{list(ids.shape)}: must be rows of the same pairs, with "
            "integer ids [N] or [N, C]."
        )
    if ids.ndim == 1:
        every = np.arange(first)
        ids = np.stack([every, every, ids], axis=1)
    if ids.shape[1] < 2:
        raise InputError(
            f"ids{list(ids.shape)}: needs an id for each of both columns; give ids [N] for one id per row."
        )
    return np.stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in ids.T], axis=1)


class _Right:
    """Which keys are right for which queries: those of a row with an equal id in any column. Memory linear in the ids."""

    def __init__(self, table: np.ndarray, query_rows: np.ndarray, key: np.ndarray, keys: int) -> None:
        self.keys = keys
        others = np.delete(table, 1, axis=1)
        offsets = np.concatenate([[0], np.cumsum(others.max(0) + 1)[:-1]])  # ids of all columns differ
        self.codes = others[query_rows] + offsets  # [Q, C − 1]
        self.known = np.unique((others + offsets) * keys + key[:, None])

    def __call__(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Returns whether keys [q, k] are right for queries [q], bool [q, k]."""
        right = np.zeros(keys.shape, bool)
        for column in self.codes[queries].T:
            wanted = column[:, None] * self.keys + keys
            place = np.minimum(np.searchsorted(self.known, wanted), len(self.known) - 1)
            right |= self.known[place] == wanted
        return right


class _Mining:
    """The search for the nearest wrong keys of queries."""

    def __init__(
        self, first: np.ndarray, second: np.ndarray, query_rows: np.ndarray, key_rows: np.ndarray, right: _Right
    ) -> None:
        self.first, self.second, self.query_rows, self.key_rows, self.right = first, second, query_rows, key_rows, right
        whole = len(key_rows) == len(second)
        self.among: Tensor | None = None if whole else torch.from_numpy(key_rows)
        self.margin = (first.shape[1] + 8) * 2.0**-23  # of a product in fp32

    def nearest_wrong(self, queries: np.ndarray, limit: np.ndarray, need: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ``need`` most similar wrong keys below each query's limit, and their cosines; −1 and NaN: none."""
        keys, values = np.full((len(queries), need), -1), np.full((len(queries), need), np.nan)
        pending, k = np.arange(len(queries)), min(need + SPARE, len(self.key_rows))
        while len(pending):
            asked = queries[pending]
            products, columns = nearest(
                as_tensor(self.second),
                unit_rows(self.first, self.query_rows[asked]),
                k,
                unit=True,
                among=self.among,
                below_Q=torch.from_numpy(limit[asked] + self.margin).float(),
            )
            there = np.isfinite(products.numpy())
            found = np.where(there, columns.numpy(), 0)
            pairs = self.query_rows[np.repeat(asked, k)], self.key_rows[found.reshape(-1)]
            exact = cosines(self.first, pairs[0], self.second, pairs[1]).reshape(found.shape)
            there_and_wrong = there & ~self.right(asked, found) & (exact < limit[asked, None])
            order = np.lexsort((found, -np.where(there_and_wrong, exact, -np.inf)))[:, :need]
            chosen, some = order.shape[1], np.take_along_axis(there_and_wrong, order, 1)
            keys[pending, :chosen] = np.where(some, np.take_along_axis(found, order, 1), -1)
            values[pending, :chosen] = np.where(some, np.take_along_axis(exact, order, 1), np.nan)
            # Cells that are right took the place of others: search deeper, unless no key is left.
            complete = (there_and_wrong.sum(1) >= need) | ~there[:, -1] | (k == len(self.key_rows))
            pending, k = pending[~complete], min(2 * k, len(self.key_rows))
        return keys, values
