"""What losses over class centres share: labels within their range, class frequencies, the mean over known labels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from coulomb.losses.arguments import checked_labels, warn_counted


def class_labels(labels: Tensor, length: int, classes: int, like: Tensor) -> Tensor:
    """Labels [B] in 0 … classes − 1, or −1 for unknown (values are not looked at in a compiled graph)."""
    labels = checked_labels(labels, length, like)
    if not torch.compiler.is_compiling() and not labels.is_meta and int(labels.max()) >= classes:
        raise ValueError(f"labels must be below the number of classes, {classes}; got {int(labels.max())}")
    return labels


def checked_counts(class_counts: Tensor | Sequence[float]) -> Tensor:
    """Samples of each class, [C], positive; for a buffer (integers stay so, and are exact)."""
    counts = torch.as_tensor(class_counts).detach().clone()
    if counts.ndim != 1 or len(counts) == 0:
        raise ValueError(f"class_counts must be a list of counts, one for each class; got shape {tuple(counts.shape)}")
    bad = ~((counts > 0) & counts.isfinite())
    if bad.any():
        where = int(bad.nonzero()[0])
        raise ValueError(
            f"class_counts must be positive and finite, got {counts[where]} for class {where}: "
            "give an absent class a count of 1, or leave it out"
        )
    return counts


def log_frequencies(counts: Tensor, like: Tensor, classes: int, source: str) -> Tensor:
    """log π_c = log(n_c / Σ n), [C]: what a balanced softmax adds to its logits. ``source`` names the C ``classes``."""
    if len(counts) != classes:
        raise ValueError(f"{source} has {classes} classes, class_counts {len(counts)}")
    counts = counts.to(like)
    return (counts / counts.sum()).log()


def checked_smoothing(label_smoothing: float) -> float:
    """ε in [0, 1)."""
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}")
    return float(label_smoothing)


def warn_unknown(known: Tensor) -> None:
    """Count the labels −1 in a `CoulombWarning` (not in a compiled graph)."""
    if not torch.compiler.is_compiling():
        unknown = int((~known).sum())
        if unknown:
            warn_counted(unknown, len(known), "labels are unknown (−1): left out of the mean, with a loss of 0")


def reduced_over(loss_N: Tensor, kept_N: Tensor, reduction: str) -> Tensor:
    """The mean over the samples that are kept (0 if none is), the sum, or the values, 0 for those left out."""
    loss_N = loss_N.masked_fill(~kept_N, 0)
    if reduction == "none":
        return loss_N
    return loss_N.sum() / kept_N.sum().clamp_min(1) if reduction == "mean" else loss_N.sum()
