"""Which pairs (query i, key j) a reduction counts: by name, by ids, or by the user's mask, without storing a matrix."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN
from coulomb.ground.machine import exclude_
from coulomb.similarity import policy
from coulomb.similarity.products import matmul

NAMES = ("all", "others", "negatives", "positives")
EXACT = 2**24  # fp32 holds smaller integers exactly


@dataclass(eq=False)
class Pairs:
    """A set of pairs, available tile by tile.

    Args:
        shape: (N queries, M keys).
        device: of the tiles.
        drop_self: leave out the pair (i, i); the first N keys are then the queries.
        same: None ignores ids; True selects pairs of equal id, False pairs of different id.
        query_ids, key_ids: integers [N], [M]; −1 is unknown and equals no other id.
        instances: n, instead of ids: row i and key i have the id i mod n (views of n images).
        mask: the user's [N, M], boolean or non-negative weights, instead of ids.
    """

    shape: tuple[int, int]
    device: torch.device
    drop_self: bool = False
    same: bool | None = None
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    instances: int | None = None
    mask: Tensor | None = None
    _equal_NM: Tensor | None = field(default=None, init=False)
    _compared_ids: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    @property
    def everything(self) -> tuple[slice, slice]:
        """The whole matrix as one tile."""
        return slice(0, self.shape[0]), slice(0, self.shape[1])

    def transposed(self) -> "Pairs":
        """The same pairs with queries and keys swapped."""
        mask = None if self.mask is None else self.mask.T
        shape = self.shape[1], self.shape[0]
        return Pairs(shape, self.device, self.drop_self, self.same, self.key_ids, self.query_ids, self.instances, mask)

    def touches(self, rows: slice, cols: slice) -> bool:
        """False if a tile certainly holds no pair that counts, so that it need not be computed."""
        if self.same is not True:
            return True
        return self._ids_may_meet(rows, cols) if self.instances is None else bool(self._diagonals(rows, cols))

    def hidden(self, rows: slice, cols: slice) -> Tensor | None:
        """Boolean tile, True for pairs that do not count; None if all of them count."""
        if self.mask is not None:
            tile = self.mask[rows, cols]
            return ~tile if tile.dtype == torch.bool else tile <= 0
        diagonals, size = self._diagonals(rows, cols), (rows.stop - rows.start, cols.stop - cols.start)
        out: Tensor | None = None
        if self.query_ids is not None and self.same is not None:
            query, key = self.ids
            out = query[rows, None] != key[cols] if self.same else query[rows, None] == key[cols]
        elif self.same:
            out = torch.ones(size, dtype=torch.bool, device=self.device)
            for offset in diagonals:
                out.diagonal(offset).fill_(False)
            diagonals = [rows.start - cols.start] if self.drop_self and rows.start - cols.start in diagonals else []
        if diagonals:
            out = torch.zeros(size, dtype=torch.bool, device=self.device) if out is None else out
            for offset in diagonals:
                out.diagonal(offset).fill_(True)
        return out

    def hide_(self, tile_RC: Tensor, rows: slice, cols: slice) -> Tensor:
        """Fills the pairs that do not count with −∞, in place: a few diagonals if that suffices."""
        by_ids = self.query_ids is not None and self.same is not None
        if self.mask is not None or (self.same and not by_ids):
            return tile_RC.masked_fill_(self.hidden(rows, cols), -torch.inf)  # type: ignore[arg-type]  # never None
        if by_ids and (self.same or (rows, cols) == self.everything or self._ids_may_meet(rows, cols)):
            query, key = self._codes
            exclude_(tile_RC, torch.ne if self.same else torch.eq, query[rows, None], key[cols])
        for offset in self._diagonals(rows, cols):
            tile_RC.diagonal(offset).fill_(-torch.inf)
        return tile_RC

    def weights(self, rows: slice, cols: slice) -> Tensor | None:
        """The tile of a weighting mask; None when every pair that counts weighs 1."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return None
        return self.mask[rows, cols]

    def count(self) -> Tensor:
        """Number of pairs that count in each row, [N] integers; for a weighting mask the sum of weights."""
        if self.mask is not None:
            return self.mask.sum(1)
        if self._compared:
            return self._equal.sum(1)
        return self.sum(torch.ones(self.shape[1], 1, dtype=torch.double, device=self.device))[:, 0].long()

    def sum(self, keys_MD: Tensor) -> Tensor:
        """Σ_j k_j over the keys that count in each row, [N, D], from sums by id: no matrix of pairs (no mask)."""
        n = self.shape[0]
        if self._compared:
            return matmul(self._equal.to(keys_MD.dtype), keys_MD)
        sums = everything = keys_MD.sum(0).expand(n, -1)
        holds_self = torch.ones(n, dtype=torch.bool, device=self.device)  # (i, i) would count if it were not dropped
        if self.same is not None:
            query_class, key_class, size = self._classes
            by_class = keys_MD.new_zeros(size, keys_MD.shape[1]).index_add(0, key_class, keys_MD)
            equal = by_class.index_select(0, query_class)  # its gradient is much faster than the gradient of indexing
            sums = equal if self.same else everything - equal
            if self.query_ids is not None:
                holds_self = (self.query_ids != UNKNOWN) == self.same
            elif not self.same:
                holds_self = ~holds_self
        return sums - keys_MD[:n] * holds_self[:, None] if self.drop_self else sums

    @property
    def ids(self) -> tuple[Tensor, Tensor]:
        """The ids of queries and keys, in which unknown keys differ from unknown queries: equal ids are known."""
        if self._compared_ids is None:  # not a cached_property, which torch.compile cannot trace
            assert self.query_ids is not None and self.key_ids is not None
            key_ids = self.key_ids.masked_fill(self.key_ids == UNKNOWN, UNKNOWN - 1)
            self._compared_ids = self.query_ids, key_ids
        return self._compared_ids

    @property
    def _compared(self) -> bool:
        few = self.shape[0] * self.shape[1] <= policy.current().compared
        return few and self.same is True and self.query_ids is not None

    @property
    def _equal(self) -> Tensor:
        """Boolean [N, M]: the pairs of equal id that count."""
        if self._equal_NM is None:  # not a cached_property, which torch.compile cannot trace
            query, key = self.ids
            self._equal_NM = query[:, None] == key
            if self.drop_self:
                self._equal_NM.diagonal().fill_(False)  # vmap has no fill_diagonal_
        return self._equal_NM

    @property
    def _classes(self) -> tuple[Tensor, Tensor, int]:
        """(class of each query [N], class of each key [M], number of classes): the ids, numbered from 0."""
        if self.instances is not None:
            query, key = (torch.arange(length, device=self.device) % self.instances for length in self.shape)
            return query, key, self.instances
        # Not torch.unique, whose result's size depends on the values: a graph compiler could not follow.
        ids = torch.cat(self.ids)
        ordered, order = ids.sort()
        rank = torch.zeros_like(ids)
        rank[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
        number = torch.empty_like(ids).scatter(0, order, rank)
        return number[: self.shape[0]], number[self.shape[0] :], len(ids)

    @cached_property
    def _codes(self) -> tuple[Tensor, Tensor]:
        """The ids in fp32 on a CPU, where it compares faster; numbered anew if it would round them."""
        ids = self.ids
        if self.device.type != "cpu":
            return ids
        exact = all(len(one) == 0 or int(one.max()) < EXACT for one in ids)
        query, key = ids if exact else self._classes[:2]
        return query.float(), key.float()

    def _diagonals(self, rows: slice, cols: slice) -> list[int]:
        """Offsets of the tile's diagonals on which i ≡ j (mod instances); without instances, of i = j if dropped."""
        if self.instances is None and not self.drop_self:
            return []
        n, origin = self.instances or max(1, sum(self.shape)), rows.start - cols.start
        first = -(((rows.stop - rows.start) - 1 + origin) // n)  # smallest k with origin + k·n > −rows
        return list(range(origin + first * n, cols.stop - cols.start, n))

    def _ids_may_meet(self, rows: slice, cols: slice) -> bool:
        # Two blocks whose ranges of ids do not overlap share no id: true of most tiles when ids are ordered, as views are.
        if self.device.type != "cpu":  # reading the ids would wait for the GPU
            return True
        query, key = self._codes[0][rows].numpy(), self._codes[1][cols].numpy()
        return bool(len(query) and len(key) and max(query.min(), key.min()) <= min(query.max(), key.max()))
