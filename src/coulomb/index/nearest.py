"""Exact nearest neighbors of some queries among memory-mapped features, which are converted to float32 block by block.

A block of 2²⁰ elements stays in the cache of a core between its conversion and its product: 1,000,000 × 256 in float16 take
76 ms in one thread, with blocks of 2²³ elements 284 ms. Threads work on strips of their own (`coulomb.ground.workers`).
"""

import threading
import warnings
from functools import partial

import numpy as np
import torch
from torch import Tensor

from coulomb.ground import workers
from coulomb.ground.workers import Task
from coulomb.similarity.products import product

BLOCK = 2**20  # elements of the features that are converted at a time: 4 MiB in float32
STRIP = 2**23  # products that a thread stores: 32 MiB
QUERIES = 4096  # that share one pass over the features


def as_tensor(features: np.ndarray) -> Tensor:
    """Returns a tensor that shares the memory of read-only ``features``, and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(features)


def nearest(features_ND: Tensor, queries_QD: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Returns the largest products of each query with the features and their rows, both [Q, min(top, N)], largest first.

    Memory does not grow with N. Equal products are ordered by row; which of those that equal the last one are returned is
    not specified. NaN counts as the largest.

    Args:
        features_ND: N ≥ 1 vectors of any floating type, on the CPU.
        queries_QD: float32.
        top: how many, at least 1.
    """
    parts = [Pass(features_ND, part.contiguous(), min(top, len(features_ND))) for part in queries_QD.split(QUERIES)]
    for each in parts:
        workers.run((Task(partial(each.search, start), ()) for start in each.starts), len(each.starts))
    return torch.cat([each.best for each in parts]), torch.cat([each.rows for each in parts])


class Pass:
    """One pass of some queries over the features.

    Attributes:
        starts: first rows of the strips.
        best: the largest products so far [Q, top].
        rows: their rows.
    """

    def __init__(self, features: Tensor, queries: Tensor, top: int) -> None:
        self.features, self.queries, self.top = features, queries, top
        self.step = max(1, BLOCK // features.shape[1])
        share = -(-len(features) // torch.get_num_threads())
        self.height = max(top, min(STRIP // len(queries), share))
        self.starts = range(0, len(features), self.height)
        self.best = torch.full((len(queries), top), -torch.inf)
        self.rows = torch.full((len(queries), top), len(features))
        self._lock = threading.Lock()

    @torch.no_grad()
    def search(self, start: int) -> None:
        """Adds the largest products of one strip."""
        products = self._products(self.features[start : start + self.height])
        # After some strips, few queries have a product as large as their smallest one so far.
        improved = (~(products.amax(1) < self.best[:, -1])).nonzero().squeeze(1)  # also where a product is NaN
        some = products if len(improved) == len(products) else products[improved]
        values, columns = some.topk(min(self.top, products.shape[1]), dim=1)
        with self._lock:
            values = torch.cat([self.best[improved], values], 1)
            rows, order = torch.cat([self.rows[improved], columns + start], 1).sort(dim=1)
            values, second = values.gather(1, order).sort(dim=1, descending=True, stable=True)
            self.best[improved] = values[:, : self.top]
            self.rows[improved] = rows.gather(1, second)[:, : self.top]

    def _products(self, features: Tensor) -> Tensor:
        products = torch.empty(len(self.queries), len(features))
        block = torch.empty(min(self.step, len(features)), features.shape[1])
        for start in range(0, len(features), self.step):
            part = features[start : start + self.step]
            block[: len(part)].copy_(part)
            if len(self.queries) == 1:
                torch.mv(block[: len(part)], self.queries[0], out=products[0, start : start + self.step])
            else:
                products[:, start : start + self.step] = product(self.queries, block[: len(part)])
        return products
