"""The most similar rows of every row, exact, without storing the matrix of similarities."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from coulomb.ground import workers
from coulomb.ground.errors import InputError
from coulomb.ground.workers import Task
from coulomb.metrics.rows import blocks, unit_rows
from coulomb.similarity.products import product

TILE = 8192  # keys per product
QUERIES = 1024  # rows per product: 32 MiB of similarities in fp32
GROUP = 16  # columns whose largest is found first: the k largest lie in the k groups with the largest maxima


@torch.no_grad()
def neighbors(x: np.ndarray, k: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cosines [n,k] float32 and positions [n,k] of the ``k`` nearest other rows, in descending order.

    Args:
        x: features [N,D] that `check_rows` accepts; a memory-mapped array is read in blocks.
        k: number of neighbors, at most n − 1.
        rows: search among these rows only and return a line for each; positions are those in ``rows``. Default: all.

    O(n²·D) time; memory for the result and one tile of similarities. Raises `InputError` for a ``k`` out of range.
    """
    among = np.arange(len(x)) if rows is None else rows
    count = len(among)
    if not 1 <= k < count:
        raise InputError(f"k={k}: must be from 1 to {count - 1}, the number of other images.")
    values = np.empty((count, k), np.float32)
    columns = np.empty((count, k), np.int64)

    def search(block: slice) -> None:
        queries = unit_rows(x, among[block])
        best = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        for tile in blocks(count, TILE):
            cosines = product(queries, unit_rows(x, among[tile]))
            own = np.arange(block.start, block.stop)
            inside = (own >= tile.start) & (own < tile.stop)
            cosines[inside.nonzero()[0], own[inside] - tile.start] = -torch.inf
            near, places = _largest(cosines, min(k, tile.stop - tile.start))
            both = torch.cat([best[0], near], 1), torch.cat([best[1], places + tile.start], 1)
            top, order = both[0].topk(min(k, both[0].shape[1]), dim=1)
            best = top, both[1].gather(1, order)
        values[block], columns[block] = best[0].numpy(), best[1].numpy()

    queries = [*blocks(count, QUERIES)]
    workers.run((Task(partial(search, block), ()) for block in queries), len(queries))
    return values, columns


def _largest(cosines: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``cosines.topk(k)``, several times as fast for wide rows."""
    whole = cosines.shape[1] // GROUP
    if whole <= 2 * k:
        return cosines.topk(k, dim=1)
    groups = cosines[:, : whole * GROUP].view(len(cosines), whole, GROUP).amax(2).topk(k, dim=1).indices
    columns = (groups[:, :, None] * GROUP + torch.arange(GROUP)).flatten(1)
    rest = torch.arange(whole * GROUP, cosines.shape[1]).expand(len(cosines), -1)
    columns = torch.cat([columns, rest], 1)
    top, order = cosines.gather(1, columns).topk(k, dim=1)
    return top, columns.gather(1, order)
