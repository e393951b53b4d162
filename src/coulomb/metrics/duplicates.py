"""Pairs of nearly identical embeddings."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import check_vectors
from coulomb.metrics.pairs import similar_pairs

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

    >>> near_duplicates(torch.tensor([[1.0, 0], [0, 1], [1, 0]])).pairs.tolist()
    [[0, 2]]
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

    All pairs are counted, decided in fp64 (`coulomb.metrics.pairs`), and the ``most`` most similar are returned: O(n·M·D)
    time, memory linear in n. Computed on the CPU.
    Rows of zeros have no duplicates. Raises `InputError` for invalid shapes or values, or a threshold outside (0, 1].

    Shape:
        x: [n, D].
        keys: [M, D].

    >>> near_duplicates(torch.tensor([[1.0, 0], [0, 1], [1, 0.01]])).near
    1
    """
    if not 0 < threshold <= 1 or most < 1:
        raise InputError(f"threshold={threshold} must be in (0, 1], most={most} at least 1.")
    points = check_vectors(x, "x").cpu().numpy()
    others = None if keys is None else check_vectors(keys, "keys").cpu().numpy()
    if others is not None and others.shape[1] != points.shape[1]:
        raise InputError(f"keys have {others.shape[1]} dimensions, x has {points.shape[1]}.")
    paired = np.zeros(len(points), bool)
    pairs, values = np.empty((0, 2), np.int64), np.empty(0)
    near = exact = 0
    for rows, columns, cosines in similar_pairs(points, min(threshold, EXACT), others):
        paired[rows] = True
        if keys is None:
            paired[columns] = True
        near, exact = near + len(cosines), exact + int((cosines >= EXACT).sum())
        pairs, values = np.concatenate([pairs, np.stack([rows, columns], 1)]), np.concatenate([values, cosines])
        order = np.argsort(-values, kind="stable")[:most]
        pairs, values = pairs[order], values[order]
    return Duplicates(threshold, torch.from_numpy(pairs), torch.from_numpy(values), near, exact, float(paired.mean()))
