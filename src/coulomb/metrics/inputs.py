"""Checked inputs: finite vectors, integer labels, and both without the rows whose label is unknown (−1)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError

Features = Tensor | np.ndarray
Labels = Tensor | np.ndarray


def check_vectors(x: Tensor, name: str, *, least: int = 1, like: Tensor | None = None) -> Tensor:
    """Returns ``x`` [n,D] as float32 or float64 without gradient.

    Raises:
        InputError: not a floating-point matrix of at least ``least`` rows, another shape than ``like``, NaN or infinity.
    """
    if x.ndim != 2 or len(x) < least or (least and not x.shape[1]) or not x.is_floating_point():
        raise InputError(f"{name} must be floating-point vectors [n, D], n ≥ {least}, got {x.dtype} {list(x.shape)}.")
    if like is not None and x.shape != like.shape:
        raise InputError(f"{name} {list(x.shape)} must have the shape of the other view, {list(like.shape)}.")
    bad = int((~x.isfinite().all(1)).sum())
    if bad:
        raise InputError(f"{name} has {bad} of {len(x)} rows with NaN or infinite values: the encoder has diverged.")
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


def unit_vectors(x: Tensor, name: str, *, least: int = 1, like: Tensor | None = None) -> Tensor:
    """`check_vectors`, then rows normalized to length 1; a row of zeros stays zero."""
    return functional.normalize(check_vectors(x, name, least=least, like=like), dim=1)


def check_integers(values: Tensor, name: str, like: Tensor) -> Tensor:
    """Returns labels or ids [n] of the n rows of ``like`` as int64 on its device; raises InputError for anything else."""
    if values.shape != (len(like),) or values.is_floating_point() or values.is_complex():
        raise InputError(f"{name} must be {len(like)} integers, got {values.dtype} {list(values.shape)}.")
    return values.to(like.device, torch.int64)


def equal_labels(first: Tensor, second: Tensor) -> Tensor:
    """Returns a boolean [n,m]: True for pairs of equal labels; an unknown label (−1) equals none."""
    return (first[:, None] == second[None]) & (first >= 0)[:, None]


class Labeled(NamedTuple):
    """The labeled rows: ``x`` float32 [n,F] on the CPU, ``y`` int64 [n]; and the number of rows without a label."""

    x: Tensor
    y: Tensor
    unlabeled: int


def check_features(values: Features, name: str) -> Tensor:
    """Returns features as float32 [n,F] on the CPU, n ≥ 0; raises InputError as `check_vectors` does."""
    return check_vectors(torch.as_tensor(values).cpu(), name, least=0).float()


def drop_unlabeled(features: Features, labels: Labels, name: str) -> Labeled:
    """Returns the rows with a label; ``name`` ("train" or "test") appears in error messages."""
    x = check_features(features, f"{name}_x")
    y = check_integers(torch.as_tensor(labels).detach().cpu(), f"{name}_y", x)
    labeled = y >= 0
    return Labeled(x[labeled], y[labeled], int((~labeled).sum()))


def labeled_split(train_x: Features, train_y: Labels, test_x: Features, test_y: Labels) -> tuple[Labeled, Labeled]:
    """Returns the labeled training and test rows; raises InputError if either has none or their widths differ."""
    train, test = drop_unlabeled(train_x, train_y, "train"), drop_unlabeled(test_x, test_y, "test")
    for name, part in (("train", train), ("test", test)):
        if not len(part.y):
            raise InputError(f"{name}_y has no label other than −1: nothing can be measured; use view_retrieval.")
    if train.x.shape[1] != test.x.shape[1]:
        raise InputError(f"train_x has {train.x.shape[1]} features and test_x {test.x.shape[1]}: use one encoder.")
    return train, test
