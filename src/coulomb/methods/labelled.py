"""What methods with class labels share: class counts, and the loss of a constant prediction."""

import warnings

import torch
from torch import Tensor

from coulomb.errors import CoulombWarning


def present(class_counts: Tensor) -> Tensor:
    """``class_counts`` [C] with 1 for classes without training images, which a `CoulombWarning` counts."""
    missing = int((class_counts <= 0).sum())
    if missing:
        warnings.warn(
            f"{missing} of {len(class_counts)} classes have no training image: their frequency is taken as that of one",
            CoulombWarning,
        )
    return class_counts.clamp_min(1)


def entropy(class_counts: Tensor, label_smoothing: float = 0.0) -> float:
    """Cross-entropy of the best constant prediction: H(π), π the class frequencies, smoothed like the targets."""
    share = class_counts.double() / class_counts.sum().clamp_min(1)
    share = (1 - label_smoothing) * share + label_smoothing / len(share)
    return float(torch.special.entr(share).sum())


def known_rows(rows: Tensor, labels: Tensor, views: int) -> tuple[Tensor, Tensor]:
    """Rows [V·B, …] and labels [B] of all views → those with a known label, and the labels of each row."""
    every = labels.repeat(views)
    return rows[every >= 0], every[every >= 0]
