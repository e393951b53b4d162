"""The one search for nearest neighbors: exact, among rows in memory or memory-mapped, which are read block by block.

A block of 2²⁰ elements stays in the cache of a core between its conversion to float32 and its product: 1,000,000 × 256 in
float16 take 76 ms in one thread, with blocks of 2²³ elements 284 ms. Threads work on strips of their own
(`coulomb.ground.workers`).
"""

import threading
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground import workers
from coulomb.ground.errors import InputError
from coulomb.ground.workers import Task
from coulomb.metrics.rows import as_tensor, blocks, unit_rows
from coulomb.similarity.products import product

BLOCK = 2**20  # elements of the keys that are converted at a time for few queries: 4 MiB in float32
FEW = 64  # queries; for more, the products take so long that the conversion does not matter
STRIP = 2**23  # products that a thread stores: 32 MiB
QUERIES = 1024  # that share one pass over the keys
DEPTH = 32  # keys of a strip per key that is wanted: in shorter strips merging takes longer than products
GROUP = 16  # columns whose largest is found first: the k largest lie in the k groups with the largest maxima


def nearest(
    keys_ND: Tensor,
    queries_QD: Tensor,
    k: int,
    *,
    unit: bool = False,
    among: Tensor | None = None,
    own_Q: Tensor | None = None,
    below_Q: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the largest products of each query with the keys and the keys' rows, both [Q, min(k, N)], largest first.

    Memory does not grow with N. Equal products are ordered by row; which of those that equal the last one are returned is
    not specified. NaN counts as the largest.

    Args:
        keys_ND: N ≥ 1 vectors of any floating type, on the CPU; they may be memory-mapped, see `as_tensor`.
        queries_QD: float32.
        k: how many, at least 1.
        unit: normalize the keys to length 1, after they are read; a row of zeros stays zero.
        among: search these rows only, int64 [n]; rows in the result and in ``own_Q`` are places in ``among``.
        own_Q: the row of each query among the keys, which is left out; k is then at most N − 1.
        below_Q: a limit for each query: only products below it count. Where fewer than k do, the rest of the products are
            −inf, and their rows are not specified.
    """
    count = len(keys_ND) if among is None else len(among)
    k = min(k, count)
    share = min(QUERIES, max(1, STRIP // min(count, DEPTH * k)))
    parts = [
        _Search(
            keys_ND,
            queries_QD[rows].contiguous(),
            k,
            unit=unit,
            among=among,
            own=None if own_Q is None else own_Q[rows],
            below=None if below_Q is None else below_Q[rows],
        )
        for rows in blocks(len(queries_QD), share)
    ]
    tasks = [Task(partial(part.add, keys), ()) for part in parts for keys in part.strips(len(parts))]
    workers.run(tasks, len(tasks))
    return torch.cat([part.best for part in parts]), torch.cat([part.rows for part in parts])


def nearest_by_cosine(queries_QD: Tensor, keys_ND: Tensor, k: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields (rows, cosines [r, k], columns [r, k]), the ``k`` nearest keys of blocks of queries, nearest first.

    Queries and keys are normalized here; a row of zeros has cosine 0 with every key. For many queries of which each has many
    neighbors, since the neighbors of a block only are in memory.
    """
    queries, keys = functional.normalize(queries_QD, dim=1), functional.normalize(keys_ND, dim=1)
    for rows in blocks(len(queries), max(1, STRIP // len(keys)) * torch.get_num_threads()):
        yield rows, *nearest(keys, queries[rows], k)


def neighbors(x: np.ndarray, k: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cosines [n,k] float32 and positions [n,k] of the ``k`` nearest other rows, in descending order.

    Args:
        x: features [N,D] that `check_rows` accepts; a memory-mapped array is read in blocks.
        k: number of neighbors, at most n − 1.
        rows: search among these rows only and return a line for each; positions are those in ``rows``. Default: all.

    O(n²·D) time; memory for the result and some blocks. Raises `InputError` for a ``k`` out of range.
    """
    among = np.arange(len(x)) if rows is None else rows
    count = len(among)
    if not 1 <= k < count:
        raise InputError(f"k={k}: must be from 1 to {count - 1}, the number of other images.")
    values, columns = np.empty((count, k), np.float32), np.empty((count, k), np.int64)
    chosen = None if rows is None else torch.from_numpy(rows)
    for block in blocks(count, QUERIES * torch.get_num_threads()):
        own = torch.arange(block.start, block.stop)
        found = nearest(as_tensor(x), unit_rows(x, among[block]), k, unit=True, among=chosen, own_Q=own)
        values[block], columns[block] = (each.numpy() for each in found)
    return values, columns


class _Search:
    """The search for the nearest keys of some queries; see `nearest` for the arguments.

    Attributes:
        best: the largest products so far [Q, k].
        rows: the rows of their keys.
    """

    def __init__(
        self,
        keys: Tensor,
        queries: Tensor,
        k: int,
        *,
        unit: bool,
        among: Tensor | None,
        own: Tensor | None,
        below: Tensor | None,
    ) -> None:
        self.keys, self.queries, self.k, self.unit, self.among, self.own = keys, queries, k, unit, among, own
        self.below = below
        self.count = len(keys) if among is None else len(among)
        self.step = max(1, (BLOCK if len(queries) < FEW else STRIP) // keys.shape[1])
        self.best = torch.full((len(queries), k), -torch.inf)
        self.rows = torch.full((len(queries), k), self.count)
        self._begun, self._lock = False, threading.Lock()

    def strips(self, searches: int) -> Iterator[slice]:
        """Yields the keys of each task, so that there is work for all threads beside other ``searches``."""
        tasks = -(-torch.get_num_threads() // searches)
        return blocks(self.count, max(self.k, min(STRIP // len(self.queries), -(-self.count // tasks))))

    @torch.no_grad()
    def add(self, strip: slice) -> None:
        """Adds the largest products of one strip."""
        products = self._products(strip)
        if self.own is not None:
            inside = ((self.own >= strip.start) & (self.own < strip.stop)).nonzero().squeeze(1)
            products[inside, self.own[inside] - strip.start] = -torch.inf
        if self.below is not None:
            products.masked_fill_(products >= self.below[:, None], -torch.inf)
        # After some strips, few queries have a product as large as their smallest one so far.
        improved = (~(products.amax(1) < self.best[:, -1])).nonzero().squeeze(1)  # also where a product is NaN
        some = products if len(improved) == len(products) else products[improved]
        values, columns = _largest(some, min(self.k, products.shape[1]))
        rows = columns + strip.start
        with self._lock:
            if self._begun:
                values = torch.cat([self.best[improved], values], 1)
                rows = torch.cat([self.rows[improved], rows], 1)
            self._begun = True
            values, rows = _ordered(values, rows, self.k)
            self.best[improved, : values.shape[1]], self.rows[improved, : values.shape[1]] = values, rows

    def _products(self, strip: slice) -> Tensor:
        count = strip.stop - strip.start
        block = torch.empty(min(self.step, count), self.keys.shape[1])
        if len(block) == count and len(self.queries) > 1:
            return product(self.queries, self._read(strip, block))
        products = torch.empty(len(self.queries), count)
        for part in blocks(count, self.step):
            keys = self._read(slice(strip.start + part.start, strip.start + part.stop), block)
            if len(self.queries) == 1:
                torch.mv(keys, self.queries[0], out=products[0, part])
            else:
                products[:, part] = product(self.queries, keys)
        return products

    def _read(self, rows: slice, block: Tensor) -> Tensor:
        """Returns some keys in float32, in the memory of ``block``."""
        keys = block[: rows.stop - rows.start].copy_(self.keys[rows if self.among is None else self.among[rows]])
        if self.unit:
            keys /= torch.linalg.vector_norm(keys, dim=1, keepdim=True).clamp_min_(1e-12)
        return keys


def _ordered(values: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k largest values and their rows, equal values by row; fewer values are in descending order already."""
    if values.shape[1] > k:
        values, places = values.topk(k, dim=1)
        rows = rows.gather(1, places)
    if not bool((values[:, 1:] == values[:, :-1]).any()):
        return values, rows
    rows, places = rows.sort(dim=1)
    values, places = values.gather(1, places).sort(dim=1, descending=True, stable=True)
    return values, rows.gather(1, places)


def _largest(products: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``products.topk(k)``, several times as fast for wide rows."""
    whole = products.shape[1] // GROUP
    if whole <= 2 * k:
        return products.topk(k, dim=1)
    groups = products[:, : whole * GROUP].view(len(products), whole, GROUP).amax(2).topk(k, dim=1).indices
    columns = (groups[:, :, None] * GROUP + torch.arange(GROUP)).flatten(1)
    rest = torch.arange(whole * GROUP, products.shape[1]).expand(len(products), -1)
    columns = torch.cat([columns, rest], 1)
    top, order = products.gather(1, columns).topk(k, dim=1)
    return top, columns.gather(1, order)
