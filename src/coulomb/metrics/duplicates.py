"""Pairs of nearly equal embeddings."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.metrics.cosines import cosine_strips, unit_vectors

EXACT = 1 - 1e-6  # rounding of fp32


@dataclass(frozen=True)
class Duplicates:
    """Pairs with a cosine of at least ``threshold``.

    Attributes:
        threshold: what counts as near.
        pairs: the nearest of them, [p,2] rows and columns, nearest first.
        cosines: of these pairs, [p].
        near: how many pairs there are in all.
        exact: how many of them are equal to rounding.
        rows: share of rows with at least one such pair.
    """

    threshold: float
    pairs: Tensor
    cosines: Tensor
    near: int
    exact: int
    rows: float


def near_duplicates(x: Tensor, keys: Tensor | None = None, *, threshold: float = 0.99, most: int = 1000) -> Duplicates:
    """`Duplicates` among ``x`` [n,D] (each pair once), or between ``x`` and ``keys`` [M,D], as between test and train.

    Copies of an image among the negatives are pushed away from themselves: they are false negatives of the worst kind. Use
    an encoder that was not trained on the images, or pixels, when copies in the data are looked for: a trained one also
    finds images that are merely alike.

    The search streams, strip by strip; all near pairs are counted and the nearest ``most`` kept: O(n·M·D) time, memory of a
    strip and of n. Rows of zeros are near nothing. Raises `InputError` for bad shapes, values or a threshold outside (0, 1].
    """
    if not 0 < threshold <= 1 or most < 1:
        raise InputError(f"threshold={threshold} must be in (0, 1], most={most} at least 1")
    points = unit_vectors(x, "x")
    others = points if keys is None else unit_vectors(keys, "keys")
    if others.shape[1] != points.shape[1]:
        raise InputError(f"keys have {others.shape[1]} dimensions, x has {points.shape[1]}")
    at_least = min(threshold, EXACT)
    columns = torch.arange(len(others), device=points.device)
    touched = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    pairs, values = torch.empty(0, 2, dtype=torch.int64, device=points.device), points.new_empty(0)
    near = exact = 0
    for rows, cosines, _ in cosine_strips(points, others):
        close = cosines >= at_least
        if keys is None:
            own = torch.arange(rows.start, rows.stop, device=points.device)
            touched[rows] = (close & (columns != own[:, None])).any(1)
            close &= columns > own[:, None]
        else:
            touched[rows] = close.any(1)
        found = close.nonzero()
        chosen = cosines[close]
        near, exact = near + len(chosen), exact + int((chosen >= EXACT).sum())
        found[:, 0] += rows.start
        pairs, values = torch.cat([pairs, found]), torch.cat([values, chosen])
        order = values.argsort(descending=True, stable=True)[:most]
        pairs, values = pairs[order], values[order]
    return Duplicates(threshold, pairs, values, near, exact, float(touched.double().mean()))
