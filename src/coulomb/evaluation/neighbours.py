"""Nearest neighbours by cosine, a block of queries at a time."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.similarity import Similarity

ELEMENTS = 2**23  # similarities held at once: 32 MB in fp32


def nearest(queries_ND: Tensor, keys_MD: Tensor, k: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For each block of queries: its rows, and the ``k`` largest cosines with their keys, [rows, k], descending.

    Rows are normalised here; a row of zeros has cosine 0 with everything.
    """
    queries, keys = functional.normalize(queries_ND, dim=1), functional.normalize(keys_MD, dim=1)
    rows = max(1, ELEMENTS // len(keys))
    for start in range(0, len(queries), rows):
        block = slice(start, min(start + rows, len(queries)))
        with torch.no_grad():
            cosines, columns = Similarity(queries[block], keys, backend="dense").topk(k)
        yield block, cosines, columns
