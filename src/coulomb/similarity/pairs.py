"""Which pairs (query i, key j) a fold counts: by name, by ids, or by the user's mask; never a dense matrix of our own."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

NAMES = ("all", "others", "negatives", "positives")
UNKNOWN = -1  # an id that matches nobody
UNKNOWN_KEY = -2  # … and what it becomes among the keys, so that one comparison of ids suffices


@dataclass(frozen=True)
class Pairs:
    """A set of pairs, asked tile by tile.

    Args:
        shape: (N queries, M keys).
        device: where the tiles live.
        drop_self: leave out pair (i, i); the first N keys are then the queries themselves.
        same: None ignores ids; True keeps pairs of equal id, False pairs of different id.
        query_ids, key_ids: integers [N], [M]; unknown is −1 among queries and −2 among keys, and so equals nothing.
        mask: the user's [N, M], boolean or non-negative weights; replaces the ids.
    """

    shape: tuple[int, int]
    device: torch.device
    drop_self: bool = False
    same: bool | None = None
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    mask: Tensor | None = None

    def touches(self, rows: slice, cols: slice) -> bool:
        """False when a tile certainly holds no pair that counts, so that it need not be computed."""
        return self.same is not True or self._ids_may_meet(rows, cols)

    def hidden(self, rows: slice, cols: slice) -> Tensor | None:
        """Boolean tile, True where a pair does not count; None when all of them count."""
        out: Tensor | None = None
        if self.mask is not None:
            tile = self.mask[rows, cols]
            out = ~tile if tile.dtype == torch.bool else tile <= 0
        elif self.same is not None and (self.same or self._ids_may_meet(rows, cols)):
            assert self.query_ids is not None and self.key_ids is not None
            query, key = self.query_ids[rows, None], self.key_ids[None, cols]
            out = query != key if self.same else query == key
        low, high = max(rows.start, cols.start), min(rows.stop, cols.stop)
        if self.drop_self and low < high:
            if out is None:
                size = (rows.stop - rows.start, cols.stop - cols.start)
                out = torch.zeros(size, dtype=torch.bool, device=self.device)
            out[low - rows.start : high - rows.start, low - cols.start : high - cols.start].diagonal().fill_(True)
        return out

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
        total = torch.full((n,), m, dtype=torch.long, device=self.device)
        if self.same is not None:
            query_class, key_class, size = self.classes
            equal = torch.bincount(key_class, minlength=size)[query_class]
            total = equal if self.same else total - equal
        return total - self.holds_self.long() if self.drop_self else total

    @cached_property
    def holds_self(self) -> Tensor:
        """Boolean [N]: would (i, i) count, were it not dropped?"""
        if self.same is None:
            return torch.ones(self.shape[0], dtype=torch.bool, device=self.device)
        assert self.query_ids is not None
        return self.query_ids != UNKNOWN if self.same else self.query_ids == UNKNOWN

    @cached_property
    def classes(self) -> tuple[Tensor, Tensor, int]:
        """(class of each query [N], class of each key [M], number of classes): the ids, numbered from 0."""
        assert self.query_ids is not None and self.key_ids is not None
        ids, inverse = torch.unique(torch.cat([self.query_ids, self.key_ids]), return_inverse=True)
        n = self.shape[0]
        return inverse[:n], inverse[n:], len(ids)

    @cached_property
    def _ids_on_host(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.query_ids is not None and self.key_ids is not None
        return self.query_ids.cpu().numpy(), self.key_ids.cpu().numpy()

    def _ids_may_meet(self, rows: slice, cols: slice) -> bool:
        # Two blocks whose ranges of ids do not overlap share no id: true of most tiles when ids are ordered, as views are.
        query, key = self._ids_on_host[0][rows], self._ids_on_host[1][cols]
        return bool(len(query) and len(key) and max(query.min(), key.min()) <= min(query.max(), key.max()))
