"""Common parts of the losses over class centers: similarities of samples and centers, and class frequencies."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.checked import check_shape, check_tensor, readable
from coulomb.losses.inputs import class_ids, known_labels, normalized, warn_counted
from coulomb.similarity import Similarity


@dataclass(frozen=True)
class ClassScores:
    """Similarities s_ic of samples and class centers.

    Attributes:
        similarity: samples × centers; the center of a sample's label is its positive, the others are its negatives.
        known: mask of known labels, [B]; None: all are known.
        target: s_iy, [B]; class 0 takes the place of an unknown label.
        rest: LSE_{c≠y} s_ic, [B], if the similarities are few enough to be stored; else None.
    """

    similarity: Similarity
    known: Tensor | None
    target: Tensor
    rest: Tensor | None = None

    def contrast(self, target: Tensor) -> Tensor:
        """Returns softplus(LSE_{c≠y} s_ic − own_i), [B]."""
        if self.rest is None:
            return self.similarity.contrast(target, counted=self.known)
        return softplus(self.rest - target, threshold=50)


def target_and_rest(logits_BC: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (logit of the sample's class, LSE of the other logits), [B] each.

    softplus(rest − target) is the cross-entropy, without cancellation.
    """
    target = labels_B[:, None].clamp_min(0)
    return logits_BC.gather(1, target).squeeze(1), logits_BC.scatter(1, target, -torch.inf).logsumexp(1)


def class_scores(
    features: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    scale: float | Tensor,
    bias: Tensor | None = None,
    counts: Tensor | None = None,
    normalize: bool,
) -> ClassScores:
    """Checks the arguments and compares features [B, D] with centers [C, D]; ``bias`` and log π of ``counts`` are added."""
    check_shape("features", features)
    check_shape("centers", centers, like=features)
    labels = class_ids(labels, len(features), features, classes=len(centers))
    known = known_labels(labels)
    if len(centers) == 1:
        warn_counted(len(labels), len(labels), "samples belong to the only class: the loss gives no gradient")
    features = normalized(("features",), features, normalize=normalize)
    centers = normalized(("centers",), centers, normalize=normalize)
    if bias is not None:
        check_tensor("bias", bias, "a floating", (len(centers),), centers, ", one value per center")
        bias = normalized(("bias",), bias[:, None], normalize=False, degree=0)[:, 0]
    if counts is not None:
        prior = log_frequencies(counts, len(centers), centers, "centers")
        bias = prior if bias is None else bias + prior
    classes = torch.arange(len(centers), device=labels.device)
    similarity = Similarity(
        features, centers, scale=scale, column_bias=bias, query_ids=labels, key_ids=classes, unit=normalize
    )
    if similarity.is_stored:
        return ClassScores(similarity, known, *target_and_rest(similarity.matrix, labels))
    return ClassScores(similarity, known, similarity.positives(labels.clamp_min(0)))


def checked_counts(name: str, class_counts: Tensor | Sequence[float]) -> Tensor:
    """Returns positive numbers of samples per class as a new tensor [C]; integers stay integers.

    Raises:
        TypeError, ValueError: not real numbers, not one dimension, or not positive and finite.
    """
    try:
        counts = torch.as_tensor(class_counts).detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} must be numbers, one per class, got {type(class_counts).__name__}") from error
    check_tensor(name, counts, "a real", (max(1, counts.numel()),), counts, ", one count per class")
    bad = ~((counts > 0) & counts.isfinite())
    if readable(bad) and bad.any():
        wrong = f"got {counts[bad][0]} for class {int(bad.nonzero()[0])}"
        raise ValueError(
            f"{name} must be positive and finite, {wrong}; use 1 for a class without samples, or remove it"
        )
    return counts


def log_frequencies(counts: Tensor, classes: int, like: Tensor, source: str) -> Tensor:
    """Returns log π_c = log(n_c / Σ n), [C], which a balanced softmax adds to the logits.

    Raises:
        ValueError: the number of ``counts`` differs from the number of ``classes`` of the argument ``source``.
    """
    if len(counts) != classes:
        raise ValueError(f"{source} has {classes} classes, but class_counts has {len(counts)}")
    counts = counts.to(like)
    return (counts / counts.sum()).log()
