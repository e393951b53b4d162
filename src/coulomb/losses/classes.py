"""What losses over class centres share: labels within their range, class frequencies, the mean over known labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.checked import checked_number, readable
from coulomb.losses.arguments import below_unknown, label_tensor, reduced, require_dense, warn_counted
from coulomb.similarity import Similarity


@dataclass(frozen=True)
class ClassScores:
    """Similarities s_ic of samples and class centres, as far as a softmax over them needs.

    Attributes:
        own: s_iy, [B]; of class 0 where the label is unknown.
        mean: mean_c s_ic, [B]; None unless asked for.
        rest: LSE_{c≠y} s_ic, [B]; None where it is streamed.
        similarity: then the matrix, in which all centres but the own are negatives.
    """

    own: Tensor
    mean: Tensor | None
    rest: Tensor | None
    similarity: Similarity | None

    def loss(self, own: Tensor, known: Tensor | None) -> Tensor:
        """softplus(LSE_{c≠y} s_ic − own_i), [B]; rows that are not ``known`` will not be used."""
        if self.similarity is not None:
            return self.similarity.against(own, counted=known)
        assert self.rest is not None
        return softplus(self.rest - own, threshold=50)


def class_scores(
    features: Tensor,
    centers: Tensor,
    labels: Tensor,
    *,
    scale: float | Tensor,
    bias: Tensor | None = None,
    unit: bool = False,
    mean: bool = False,
) -> ClassScores:
    """`ClassScores` of features [B, D] and centres [C, D]: from the logits where those are few, else streamed."""
    target = labels.clamp_min(0)
    plain = Similarity(features, centers, scale=scale, column_bias=bias, unit=unit)
    if plain.few:
        logits = plain.matrix
        own, rest = own_and_rest(logits, target)
        return ClassScores(own, logits.mean(1) if mean else None, rest, None)
    streamed = by_class(features, centers, labels, scale=scale, bias=bias, unit=unit)
    return ClassScores(streamed.positives(target), streamed.mean("all") if mean else None, None, streamed)


def by_class(
    features: Tensor, centers: Tensor, labels: Tensor, *, scale: float | Tensor, bias: Tensor | None, unit: bool
) -> Similarity:
    """Features × centres, where the own centre is the positive and all others are negatives."""
    classes = torch.arange(len(centers), device=labels.device)
    return Similarity(features, centers, scale=scale, column_bias=bias, query_ids=labels, key_ids=classes, unit=unit)


def own_and_rest(logits_BC: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
    """(logit of the own class, LSE of all others), [B]: softplus(rest − own) is the cross-entropy, without cancellation."""
    target = target_B[:, None]
    return logits_BC.gather(1, target).squeeze(1), logits_BC.scatter(1, target, -torch.inf).logsumexp(1)


def class_labels(labels: Tensor, length: int, classes: int, like: Tensor) -> tuple[Tensor, bool]:
    """Labels [B] in 0 … classes − 1, or −1 for unknown, and whether all are known for certain.

    Where the values are not `readable`, nothing is certain.
    """
    labels = label_tensor(labels, length, like)
    if not readable(labels):
        return labels, False
    least, greatest = (int(one) for one in labels.aminmax())
    if least < -1:
        raise below_unknown(least)
    if greatest >= classes:
        raise ValueError(f"labels must be below the number of classes, {classes}; got {greatest}")
    return labels, least >= 0


checked_smoothing = partial(checked_number, at_least=0, below=1)  # ε


def checked_counts(name: str, class_counts: Tensor | Sequence[float]) -> Tensor:
    """Samples of each class, [C], positive; for a buffer (integers stay so, and are exact)."""
    try:
        counts = torch.as_tensor(class_counts).detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(
            f"{name} must be a list or tensor of counts, one for each class, each within the range of its type; "
            f"got {type(class_counts).__name__}"
        ) from error
    if counts.is_complex() or counts.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {counts.dtype}")
    require_dense(name, counts)
    if counts.ndim != 1 or len(counts) == 0:
        raise ValueError(f"{name} must be a list of counts, one for each class; got shape {tuple(counts.shape)}")
    bad = ~((counts > 0) & counts.isfinite())
    if readable(bad) and bad.any():
        where = int(bad.nonzero()[0])
        raise ValueError(
            f"{name} must be positive and finite, got {counts[where]} for class {where}: "
            "give an absent class a count of 1, or leave it out"
        )
    return counts


def log_frequencies(counts: Tensor, like: Tensor, classes: int, source: str) -> Tensor:
    """log π_c = log(n_c / Σ n), [C]: what a balanced softmax adds to its logits. ``source`` names the C ``classes``."""
    if len(counts) != classes:
        raise ValueError(f"{source} has {classes} classes, class_counts {len(counts)}")
    counts = counts.to(like)
    return (counts / counts.sum()).log()


def known_of(labels: Tensor) -> Tensor:
    """Boolean [B]: which labels are known. A `CoulombWarning` counts the others (where values are `readable`)."""
    known = labels >= 0
    if readable(known):
        warn_counted(int((~known).sum()), len(known), "labels are unknown (−1): left out of the mean, with a loss of 0")
    return known


def reduced_over(loss_N: Tensor, kept_N: Tensor | None, reduction: str) -> Tensor:
    """The mean over the samples that are kept (None: all; 0 if none is), the sum, or the values, 0 for those left out."""
    if kept_N is None:
        return reduced(loss_N, reduction)
    loss_N = loss_N.masked_fill(~kept_N, 0)
    if reduction == "none":
        return loss_N
    return loss_N.sum() / kept_N.sum().clamp_min(1) if reduction == "mean" else loss_N.sum()
