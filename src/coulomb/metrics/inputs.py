"""Checked inputs of the metrics: vectors, labels, and both with unlabelled rows dropped."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from coulomb.errors import InputError


def check_vectors(x: Tensor, name: str, *, least: int = 1, like: Tensor | None = None) -> Tensor:
    """``x`` as float32 or float64 [n,D] without gradient, checked."""
    if x.ndim != 2 or len(x) < least or not x.shape[1] or not x.is_floating_point():
        raise InputError(f"{name} must be floating vectors [n, D] with n ≥ {least}, got {x.dtype} {list(x.shape)}.")
    if like is not None and x.shape != like.shape:
        raise InputError(f"{name} {list(x.shape)} must have the shape of the other view's, {list(like.shape)}.")
    if not bool(x.isfinite().all()):
        raise InputError(f"{name} has NaN or infinite values: the encoder has diverged.")
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


Features = Tensor | np.ndarray
Labels = Tensor | np.ndarray


class Labelled(NamedTuple):
    """``x`` float32 [n,F] on the CPU, ``y`` int64 [n] without −1, and how many rows had no label."""

    x: Tensor
    y: Tensor
    unlabelled: int


def check_features(values: Features, name: str) -> Tensor:
    """Float32 [n,F] on the CPU; `InputError` for another shape or values that are not finite."""
    x = torch.as_tensor(values).detach().cpu()
    if x.ndim != 2 or not x.is_floating_point():
        raise InputError(f"{name} must be floating features [n, F], got {x.dtype} of shape {list(x.shape)}.")
    x = x.float()
    bad = int((~x.isfinite().all(dim=1)).sum())
    if bad:
        raise InputError(f"{name} has {bad} of {len(x)} rows with NaN or infinite values: the encoder has diverged.")
    return x


def drop_unlabelled(features: Features, labels: Labels, name: str) -> Labelled:
    """The rows that have a label; ``name`` ("train" or "test") is for messages."""
    x = check_features(features, f"{name}_x")
    y = torch.as_tensor(labels).detach().cpu()
    if y.shape != (len(x),) or y.is_floating_point() or y.dtype == torch.bool:
        raise InputError(f"{name}_y must be {len(x)} whole numbers, got {y.dtype} of shape {list(y.shape)}.")
    y = y.long()
    known = y >= 0
    return Labelled(x[known], y[known], int((~known).sum()))


def labelled_split(train_x: Features, train_y: Labels, test_x: Features, test_y: Labels) -> tuple[Labelled, Labelled]:
    """Training and test rows that have labels; `InputError` if either has none or their widths differ."""
    train, test = drop_unlabelled(train_x, train_y, "train"), drop_unlabelled(test_x, test_y, "test")
    for name, part in (("train", train), ("test", test)):
        if not len(part.y):
            raise InputError(f"{name}_y has no label other than −1: nothing to measure by; try view_retrieval.")
    if train.x.shape[1] != test.x.shape[1]:
        raise InputError(f"train_x has {train.x.shape[1]} features and test_x {test.x.shape[1]}: use one encoder.")
    return train, test
