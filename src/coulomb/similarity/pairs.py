"""Which pairs (query i, key j) a reduction counts: by name, by ids, or by the user's mask, without storing a matrix."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import combinations

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN
from coulomb.ground.machine import exclude_
from coulomb.similarity import policy
from coulomb.similarity.guide import Guide
from coulomb.similarity.products import matmul

NAMES = ("all", "others", "negatives", "positives")
EXACT = 2**24  # fp32 holds smaller integers exactly

Classes = tuple[Tensor, Tensor, int]  # class of each query [N], class of each key [M], number of classes


@dataclass(eq=False)
class Pairs:
    """A set of pairs, available tile by tile.

    Args:
        shape: (N queries, M keys).
        device: of the tiles.
        drop_self: leave out the pair (i, i); the first N keys are then the queries.
        same: None ignores ids; True selects pairs of equal id, False pairs of different id.
        query_ids, key_ids: integers [N], [M], or C ids per row, [N, C], [M, C]: a pair has an equal id if any of its C ids
            are equal. −1 is unknown and equals no other id.
        instances: n, instead of ids: row i and key i have the id i mod n (views of n images).
        mask: the user's [N, M], boolean or non-negative weights, instead of ids.
        guide: a second similarity, which leaves out pairs at or above the limit of their row, or weights pairs.
    """

    shape: tuple[int, int]
    device: torch.device
    drop_self: bool = False
    same: bool | None = None
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    instances: int | None = None
    mask: Tensor | None = None
    guide: Guide | None = None
    _equal_NM: Tensor | None = field(default=None, init=False)
    _columns: list[tuple[Tensor, Tensor]] | None = field(default=None, init=False)

    @property
    def everything(self) -> tuple[slice, slice]:
        """The whole matrix as one tile."""
        return slice(0, self.shape[0]), slice(0, self.shape[1])

    @property
    def by_class(self) -> bool:
        """True if the pairs follow from classes of rows, so that sums over them need no tiles."""
        return self.mask is None and self.guide is None

    def transposed(self) -> "Pairs":
        """The same pairs with queries and keys swapped."""
        assert self.guide is None  # its limits belong to rows
        mask = None if self.mask is None else self.mask.T
        shape = self.shape[1], self.shape[0]
        return Pairs(shape, self.device, self.drop_self, self.same, self.key_ids, self.query_ids, self.instances, mask)

    def touches(self, rows: slice, cols: slice) -> bool:
        """False if a tile certainly holds no pair that counts, so that it need not be computed."""
        if self.same is not True:
            return True
        if self.instances is not None:
            return bool(self._diagonals(rows, cols))
        return any(self._may_meet(query[rows], key[cols]) for query, key in self._codes)

    def hidden(self, rows: slice, cols: slice) -> Tensor | None:
        """Boolean tile, True for pairs that do not count; None if all of them count."""
        if self.mask is not None:
            tile = self.mask[rows, cols]
            return ~tile if tile.dtype == torch.bool else tile <= 0
        diagonals, size = self._diagonals(rows, cols), (rows.stop - rows.start, cols.stop - cols.start)
        out: Tensor | None = None
        if self.query_ids is not None and self.same is not None:
            compare, join = (torch.ne, torch.logical_and) if self.same else (torch.eq, torch.logical_or)
            out = reduce(join, [compare(query[rows, None], key[cols]) for query, key in self.columns])
        elif self.same:
            out = torch.ones(size, dtype=torch.bool, device=self.device)
            for offset in diagonals:
                out.diagonal(offset).fill_(False)
            diagonals = [rows.start - cols.start] if self.drop_self and rows.start - cols.start in diagonals else []
        if diagonals:
            out = torch.zeros(size, dtype=torch.bool, device=self.device) if out is None else out
            for offset in diagonals:
                out.diagonal(offset).fill_(True)
        if self.guide is not None and not self.guide.weighs:
            above = self.guide.tile(rows, cols) >= self.guide.limit(rows)
            out = above if out is None else out | above
        return out

    def hide_(self, tile_RC: Tensor, rows: slice, cols: slice) -> Tensor:
        """Fills the pairs that do not count with −∞, in place: a few diagonals if that suffices."""
        by_ids = self.query_ids is not None and self.same is not None
        if self.mask is not None or (self.same and (not by_ids or self.width > 1)):
            return tile_RC.masked_fill_(self.hidden(rows, cols), -torch.inf)  # type: ignore[arg-type]  # never None
        if by_ids:
            whole = (rows, cols) == self.everything
            for query, key in self._codes:
                if self.same or whole or self._may_meet(query[rows], key[cols]):
                    exclude_(tile_RC, torch.ne if self.same else torch.eq, query[rows, None], key[cols])
        for offset in self._diagonals(rows, cols):
            tile_RC.diagonal(offset).fill_(-torch.inf)
        if self.guide is not None and not self.guide.weighs:
            tile = self.guide.tile(rows, cols)
            exclude_(tile_RC, torch.ge, tile, self.guide.limit(rows), out=tile)
        return tile_RC

    def weights(self, rows: slice, cols: slice) -> Tensor | None:
        """The tile of a weighting mask or guide; None when every pair that counts weighs 1."""
        if self.guide is not None and self.guide.weighs:
            return self.guide.weights(rows, cols)
        if self.mask is None or self.mask.dtype == torch.bool:
            return None
        return self.mask[rows, cols]

    def count(self) -> Tensor:
        """Number of pairs that count in each row, [N] integers; for a weighting mask the sum of weights."""
        if self.mask is not None:
            return self.mask.sum(1)
        if self.guide is not None:
            height = max(1, policy.current().strip // max(1, self.shape[1]))
            strips = [slice(first, min(first + height, self.shape[0])) for first in range(0, self.shape[0], height)]
            hidden = [self.hidden(rows, self.everything[1]) for rows in strips]
            return self.shape[1] - torch.cat([one.sum(1) for one in hidden])  # type: ignore[union-attr]  # never None
        if self._compared:
            return self._equal.sum(1)
        if self._few and self.same is False and self.query_ids is not None:
            return self.shape[1] - self.hidden(*self.everything).sum(1)  # type: ignore[union-attr]  # never None
        return self.sum(torch.ones(self.shape[1], 1, dtype=torch.double, device=self.device))[:, 0].long()

    def sum(self, keys_MD: Tensor) -> Tensor:
        """Σ_j k_j over the keys that count in each row, [N, D], from sums by id: no matrix of pairs (if `by_class`).

        With C ids per row by inclusion and exclusion, from the sums by each of the 2^C − 1 subsets of the ids.
        """
        n = self.shape[0]
        if self._compared:
            return matmul(self._equal.to(keys_MD.dtype), keys_MD)
        sums = everything = keys_MD.sum(0).expand(n, -1)
        holds_self = torch.ones(n, dtype=torch.bool, device=self.device)  # (i, i) would count if it were not dropped
        if self.same is not None:
            equal: Tensor | None = None
            for sign, (query_class, key_class, size) in self._classes:
                by_class = keys_MD.new_zeros(size, keys_MD.shape[1]).index_add(0, key_class, keys_MD)
                term = by_class.index_select(
                    0, query_class
                )  # its gradient is much faster than the gradient of indexing
                equal = term if equal is None else equal + sign * term
            assert equal is not None
            sums = equal if self.same else everything - equal
            if self.query_ids is not None:
                known = self.query_ids != UNKNOWN
                holds_self = (known if known.ndim == 1 else known.any(1)) == self.same
            elif not self.same:
                holds_self = ~holds_self
        return sums - keys_MD[:n] * holds_self[:, None] if self.drop_self else sums

    @property
    def width(self) -> int:
        """Number of ids per row; 0 without ids."""
        if self.query_ids is None:
            return 0
        return 1 if self.query_ids.ndim == 1 else self.query_ids.shape[1]

    @property
    def columns(self) -> list[tuple[Tensor, Tensor]]:
        """The ids of queries [N] and keys [M], C times. Unknown keys differ from unknown queries: equal ids are known."""
        if self._columns is None:  # not a cached_property, which torch.compile cannot trace
            assert self.query_ids is not None and self.key_ids is not None
            key_ids = self.key_ids.masked_fill(self.key_ids == UNKNOWN, UNKNOWN - 1)
            if self.query_ids.ndim == 1:
                self._columns = [(self.query_ids, key_ids)]
            else:
                queries, keys = (ids.T.contiguous().unbind() for ids in (self.query_ids, key_ids))
                self._columns = list(zip(queries, keys, strict=True))
        return self._columns

    @property
    def _few(self) -> bool:
        return self.shape[0] * self.shape[1] <= policy.current().compared

    @property
    def _compared(self) -> bool:
        return self._few and self.same is True and self.query_ids is not None

    @property
    def _equal(self) -> Tensor:
        """Boolean [N, M]: the pairs of equal id that count."""
        if self._equal_NM is None:  # not a cached_property, which torch.compile cannot trace
            equal = [query[:, None] == key for query, key in self.columns]
            self._equal_NM = reduce(torch.logical_or, equal)
            if self.drop_self:
                self._equal_NM.diagonal().fill_(False)  # vmap has no fill_diagonal_
        return self._equal_NM

    @property
    def _classes(self) -> Iterator[tuple[int, Classes]]:
        """(sign, classes): the sum over pairs of equal id is the sum of sign × (the sum over pairs of equal class)."""
        if self.instances is not None:
            query, key = (torch.arange(length, device=self.device) % self.instances for length in self.shape)
            yield 1, (query, key, self.instances)
            return
        columns = [numbered(*column) for column in self.columns]
        for size in range(1, 1 + len(columns)):
            for chosen in combinations(columns, size):
                yield (-1) ** (size + 1), reduce(joined, chosen)

    @cached_property
    def _codes(self) -> list[tuple[Tensor, Tensor]]:
        """The ids in fp32 on a CPU, where it compares faster; numbered anew if it would round them."""
        if self.device.type != "cpu":
            return self.columns
        exact = (all(len(one) == 0 or int(one.max()) < EXACT for one in column) for column in self.columns)
        columns = [column if kept else numbered(*column)[:2] for column, kept in zip(self.columns, exact, strict=True)]
        return [(query.float(), key.float()) for query, key in columns]

    def _diagonals(self, rows: slice, cols: slice) -> list[int]:
        """Offsets of the tile's diagonals on which i ≡ j (mod instances); without instances, of i = j if dropped."""
        if self.instances is None and not self.drop_self:
            return []
        n, origin = self.instances or max(1, sum(self.shape)), rows.start - cols.start
        first = -(((rows.stop - rows.start) - 1 + origin) // n)  # smallest k with origin + k·n > −rows
        return list(range(origin + first * n, cols.stop - cols.start, n))

    def _may_meet(self, query_R: Tensor, key_C: Tensor) -> bool:
        # Two blocks whose ranges of ids do not overlap share no id: true of most tiles when ids are ordered, as views are.
        if self.device.type != "cpu":  # reading the ids would wait for the GPU
            return True
        query, key = query_R.numpy(), key_C.numpy()
        return bool(len(query) and len(key) and max(query.min(), key.min()) <= min(query.max(), key.max()))


def numbered(query_N: Tensor, key_M: Tensor) -> Classes:
    """The ids, numbered from 0."""
    # Not torch.unique, whose result's size depends on the values: a graph compiler could not follow.
    ids = torch.cat([query_N, key_M])
    ordered, order = ids.sort()
    rank = torch.zeros_like(ids)
    rank[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
    number = torch.empty_like(ids).scatter(0, order, rank)
    return number[: len(query_N)], number[len(query_N) :], len(ids)


def joined(first: Classes, second: Classes) -> Classes:
    """Classes of rows that are equal in both."""
    return numbered(first[0] * second[2] + second[0], first[1] * second[2] + second[1])
