"""Features with their labels, checked; images whose label is unknown (−1) are left out and counted."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from coulomb.errors import InputError

Features = Tensor | np.ndarray
Labels = Tensor | np.ndarray


class Labelled(NamedTuple):
    """``x`` float32 [n,F] on the CPU, ``y`` int64 [n] without −1, and how many rows had no label."""

    x: Tensor
    y: Tensor
    unlabelled: int


def features_of(values: Features, name: str) -> Tensor:
    """Float32 [n,F] on the CPU; `InputError` for another shape or values that are not finite."""
    x = torch.as_tensor(values).detach().cpu()
    if x.ndim != 2 or not x.is_floating_point():
        raise InputError(f"{name} must be floating features [n, F], got {x.dtype} of shape {list(x.shape)}.")
    x = x.float()
    bad = int((~x.isfinite().all(dim=1)).sum())
    if bad:
        raise InputError(f"{name} has {bad} of {len(x)} rows with NaN or infinite values: the encoder has diverged.")
    return x


def labelled(features: Features, labels: Labels, name: str) -> Labelled:
    """The rows that have a label; ``name`` ("train" or "test") is for messages."""
    x = features_of(features, f"{name}_x")
    y = torch.as_tensor(labels).detach().cpu()
    if y.shape != (len(x),) or y.is_floating_point() or y.dtype == torch.bool:
        raise InputError(f"{name}_y must be {len(x)} whole numbers, got {y.dtype} of shape {list(y.shape)}.")
    y = y.long()
    known = y >= 0
    return Labelled(x[known], y[known], int((~known).sum()))


def both(train_x: Features, train_y: Labels, test_x: Features, test_y: Labels) -> tuple[Labelled, Labelled]:
    """Training and test rows that have labels; `InputError` if either has none or their widths differ."""
    train, test = labelled(train_x, train_y, "train"), labelled(test_x, test_y, "test")
    for name, part in (("train", train), ("test", test)):
        if not len(part.y):
            raise InputError(f"{name}_y has no label other than −1: nothing to measure by; try view_retrieval.")
    if train.x.shape[1] != test.x.shape[1]:
        raise InputError(f"train_x has {train.x.shape[1]} features and test_x {test.x.shape[1]}: use one encoder.")
    return train, test
