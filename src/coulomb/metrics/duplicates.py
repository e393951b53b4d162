"""Pairs of nearly identical embeddings."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.cosines import cosine_strips
from coulomb.metrics.inputs import unit_vectors

EXACT = 1 - 1e-6  # rounding in fp32


@dataclass(frozen=True)
class Duplicates:
    """Pairs with a cosine of at least ``threshold``.

    Attributes:
        threshold: the smallest cosine that counts.
        pairs: the most similar pairs, [p,2] rows and columns, in descending order.
        cosines: cosines of these pairs, [p].
        near: the number of all such pairs.
        exact: how many of them are equal up to rounding.
        rows: share of rows with at least one such pair.
    """

    threshold: float
    pairs: Tensor
    cosines: Tensor
    near: int
    exact: int
    rows: float


def near_duplicates(x: Tensor, keys: Tensor | None = None, *, threshold: float = 0.99, most: int = 1000) -> Duplicates:
    """`Duplicates` among ``x`` [n,D] (each pair once), or between ``x`` and ``keys`` [M,D], such as test and training.

    Copies of an image among its negatives are false negatives: the loss pushes the image away from itself. To find copies
    in the data, pass pixels or embeddings of an encoder that was not trained on the images; a trained encoder also maps
    merely similar images to the same point.

    All pairs are counted strip by strip and the ``most`` most similar are returned: O(n·M·D) time, memory linear in n.
    Rows of zeros have no duplicates. Raises `InputError` for invalid shapes or values, or a threshold outside (0, 1].
    """
    if not 0 < threshold <= 1 or most < 1:
        raise InputError(f"threshold={threshold} must be in (0, 1], most={most} at least 1.")
    points = unit_vectors(x, "x")
    others = points if keys is None else unit_vectors(keys, "keys")
    if others.shape[1] != points.shape[1]:
        raise InputError(f"keys have {others.shape[1]} dimensions, x has {points.shape[1]}.")
    at_least = min(threshold, EXACT)
    columns = torch.arange(len(others), device=points.device)
    paired = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    pairs, values = torch.empty(0, 2, dtype=torch.int64, device=points.device), points.new_empty(0)
    near = exact = 0
    for rows, cosines, _ in cosine_strips(points, others):
        close = cosines >= at_least
        if keys is None:
            itself = torch.arange(rows.start, rows.stop, device=points.device)[:, None]
            paired[rows] = (close & (columns != itself)).any(1)
            close &= columns > itself
        else:
            paired[rows] = close.any(1)
        strip_pairs, strip_values = close.nonzero(), cosines[close]
        near, exact = near + len(strip_values), exact + int((strip_values >= EXACT).sum())
        strip_pairs[:, 0] += rows.start
        pairs, values = torch.cat([pairs, strip_pairs]), torch.cat([values, strip_values])
        order = values.argsort(descending=True, stable=True)[:most]
        pairs, values = pairs[order], values[order]
    return Duplicates(threshold, pairs, values, near, exact, float(paired.double().mean()))
