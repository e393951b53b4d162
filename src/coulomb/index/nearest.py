"""Exact nearest neighbours of a few queries among many memory-mapped features."""

import numpy as np
import torch
from torch import Tensor

BLOCK = 2**21  # elements of features that are converted to float32 at a time: 8 MiB


def rows_of(features: np.ndarray, start: int, stop: int) -> Tensor:
    """Returns features [start:stop] as float32."""
    return torch.from_numpy(np.array(features[start:stop])).float()


@torch.no_grad()
def nearest(features: np.ndarray, queries: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Returns the ``top`` largest products of each query with the features [N, D], and their positions, both [Q, top].

    Equal products are ordered by position.
    """
    top = min(top, len(features))
    height = max(1, BLOCK // features.shape[1])
    best, places = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
    for start in range(0, len(features), height):
        block = rows_of(features, start, min(start + height, len(features)))
        products = queries @ block.T
        values, columns = products.topk(min(top, len(block)), dim=1)
        best, places = torch.cat([best, values], 1), torch.cat([places, columns + start], 1)
        best, order = best.sort(dim=1, descending=True, stable=True)
        best, places = best[:, :top], places.gather(1, order)[:, :top]
    return best, places
