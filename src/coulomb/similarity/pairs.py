"""Which pairs (query i, key j) a fold counts: by name, by ids, or by the user's mask; never a dense matrix of our own."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from coulomb.similarity import policy

NAMES = ("all", "others", "negatives", "positives")
UNKNOWN = -1  # an id that matches nobody
UNKNOWN_KEY = -2  # … and what it becomes among the keys, so that one comparison of ids suffices


@dataclass(eq=False)
class Pairs:
    """A set of pairs, asked tile by tile.

    Args:
        shape: (N queries, M keys).
        device: where the tiles live.
        drop_self: leave out pair (i, i); the first N keys are then the queries themselves.
        same: None ignores ids; True keeps pairs of equal id, False pairs of different id.
        query_ids, key_ids: integers [N], [M]; unknown is −1 among queries and −2 among keys, and so equals nothing.
        instances: n; then the id of row i is i mod n, and so is that of key i: views of n images, one view after another.
        mask: the user's [N, M], boolean or non-negative weights; replaces the ids.
    """

    shape: tuple[int, int]
    device: torch.device
    drop_self: bool = False
    same: bool | None = None
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    instances: int | None = None
    mask: Tensor | None = None
    _equal: Tensor | None = field(default=None, init=False)

    @property
    def mirrored(self) -> bool:
        """True when (j, i) counts whenever (i, j) does, if the keys are the queries."""
        return self.mask is None

    @property
    def everything(self) -> tuple[slice, slice]:
        """The whole matrix as one tile."""
        return slice(0, self.shape[0]), slice(0, self.shape[1])

    def transposed(self) -> "Pairs":
        """The same pairs with queries and keys in each other's place."""
        mask = None if self.mask is None else self.mask.T
        shape = self.shape[1], self.shape[0]
        return Pairs(shape, self.device, self.drop_self, self.same, self.key_ids, self.query_ids, self.instances, mask)

    @property
    def may_be_empty(self) -> bool:
        """False when every row certainly has a pair that counts."""
        if self.mask is not None or self.shape[1] == 0 or self.same is True:
            return True
        if self.same is None:
            return self.drop_self and self.shape[1] == 1
        return self.instances is None or self.instances == 1

    def touches(self, rows: slice, cols: slice) -> bool:
        """False when a tile certainly holds no pair that counts, so that it need not be computed."""
        if self.same is not True:
            return True
        if self.instances is not None:
            return any(True for _ in self._diagonals(rows, cols))
        return self._ids_may_meet(rows, cols)

    def hidden(self, rows: slice, cols: slice) -> Tensor | None:
        """Boolean tile, True where a pair does not count; None when all of them count."""
        if (rows, cols) != self.everything and self._all_count(rows, cols):
            return None
        out: Tensor | None = None
        size = (rows.stop - rows.start, cols.stop - cols.start)
        if self.mask is not None:
            tile = self.mask[rows, cols]
            out = ~tile if tile.dtype == torch.bool else tile <= 0
        elif self.same is not None and self.instances is not None:
            out = torch.full(size, self.same, device=self.device)
            for offset in self._diagonals(rows, cols):
                out.diagonal(offset).fill_(not self.same)
        elif self.same is not None:
            assert self.query_ids is not None and self.key_ids is not None
            query, key = self.query_ids[rows, None], self.key_ids[None, cols]
            out = query != key if self.same else query == key
        if self.drop_self and self._holds_diagonal(rows, cols):
            out = torch.zeros(size, dtype=torch.bool, device=self.device) if out is None else out
            out.diagonal(rows.start - cols.start).fill_(True)
        return out

    def hide_(self, tile_RC: Tensor, rows: slice, cols: slice) -> Tensor:
        """Fill the pairs that do not count with −∞, in place: a few diagonals where that is all, else by `hidden`."""
        if self.mask is None and self.same is False and self.instances is not None:  # self is among them
            n = self.instances
            if (rows, cols) == self.everything and self.shape[0] % n == 0 and self.shape[1] % n == 0:
                tile_RC.view(-1, n, self.shape[1] // n, n).diagonal(dim1=1, dim2=3).fill_(-torch.inf)
                return tile_RC
            for offset in self._diagonals(rows, cols):
                tile_RC.diagonal(offset).fill_(-torch.inf)
            return tile_RC
        if self.mask is None and self.same is None:
            if self.drop_self and self._holds_diagonal(rows, cols):
                tile_RC.diagonal(rows.start - cols.start).fill_(-torch.inf)
            return tile_RC
        hidden = self.hidden(rows, cols)
        return tile_RC if hidden is None else tile_RC.masked_fill_(hidden, -torch.inf)

    def weights(self, rows: slice, cols: slice) -> Tensor | None:
        """The tile of a weighting mask; None when every pair that counts weighs 1."""
        if self.mask is None or self.mask.dtype == torch.bool:
            return None
        return self.mask[rows, cols]

    def count(self) -> Tensor:
        """Pairs that count in each row, [N]: integers, or the sum of weights for a weighting mask. No matrix is formed."""
        n, m = self.shape
        if self.mask is not None:
            return self.mask.sum(1)
        if self.few:
            return self.equal.sum(1)
        total = torch.full((n,), m, dtype=torch.long, device=self.device)
        if self.same is not None:
            query_class, key_class, size = self.classes
            equal = torch.zeros(size, dtype=torch.long, device=self.device)
            equal = equal.index_add(0, key_class, torch.ones_like(key_class))[query_class]
            total = equal if self.same else total - equal
        return total - self.holds_self.long() if self.drop_self else total

    @property
    def few(self) -> bool:
        """True for pairs by equal ids that are so few that `equal` is the fastest way to them."""
        return (
            self.same is True
            and self.query_ids is not None
            and self.shape[0] * self.shape[1] <= policy.current().compared
        )

    @property
    def equal(self) -> Tensor:
        """Boolean [N, M]: the pairs of equal id that count."""
        if self._equal is None:  # not a cached_property, whose lock a graph compiler cannot follow
            assert self.same is True and self.query_ids is not None and self.key_ids is not None
            self._equal = self.query_ids[:, None] == self.key_ids
            if self.drop_self:
                self._equal.diagonal().fill_(False)  # vmap has no fill_diagonal_
        return self._equal

    @property
    def holds_self(self) -> Tensor:
        """Boolean [N]: would (i, i) count, were it not dropped?"""
        if self.same is None or self.query_ids is None:
            return torch.full(self.shape[:1], self.same is not False, device=self.device)
        return self.query_ids != UNKNOWN if self.same else self.query_ids == UNKNOWN

    @property
    def classes(self) -> tuple[Tensor, Tensor, int]:
        """(class of each query [N], class of each key [M], number of classes): the ids, numbered from 0."""
        if self.instances is not None:
            query, key = (torch.arange(length, device=self.device) % self.instances for length in self.shape)
            return query, key, self.instances
        assert self.query_ids is not None and self.key_ids is not None
        # Not torch.unique, whose result's size depends on the values: a graph compiler could not follow.
        ids = torch.cat([self.query_ids, self.key_ids])
        ordered, order = ids.sort()
        rank = torch.zeros_like(ids)
        rank[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
        number = torch.empty_like(ids).scatter(0, order, rank)
        return number[: self.shape[0]], number[self.shape[0] :], len(ids)

    @cached_property
    def _ids_on_host(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.query_ids is not None and self.key_ids is not None
        return self.query_ids.cpu().numpy(), self.key_ids.cpu().numpy()

    def _all_count(self, rows: slice, cols: slice) -> bool:
        if self.mask is not None or (self.drop_self and self._holds_diagonal(rows, cols)) or self.same is True:
            return False
        if self.same is None:
            return True
        if self.instances is not None:
            return not any(True for _ in self._diagonals(rows, cols))
        return not self._ids_may_meet(rows, cols)

    def _holds_diagonal(self, rows: slice, cols: slice) -> bool:
        return max(rows.start, cols.start) < min(rows.stop, cols.stop)

    def _diagonals(self, rows: slice, cols: slice) -> Iterator[int]:
        """Offsets of the tile's diagonals on which i ≡ j (mod instances)."""
        n, origin = self.instances, rows.start - cols.start
        assert n is not None
        first = -(((rows.stop - rows.start) - 1 + origin) // n)  # smallest k with origin + k·n > −rows
        offset = origin + first * n
        while offset < cols.stop - cols.start:
            yield offset
            offset += n

    def _ids_may_meet(self, rows: slice, cols: slice) -> bool:
        # Two blocks whose ranges of ids do not overlap share no id: true of most tiles when ids are ordered, as views are.
        query, key = self._ids_on_host[0][rows], self._ids_on_host[1][cols]
        return bool(len(query) and len(key) and max(query.min(), key.min()) <= min(query.max(), key.max()))
