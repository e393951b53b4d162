"""ArcFace: softmax over class centres on the sphere, with an angle to spare for the right class."""

import math
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from coulomb.checked import checked_flag, checked_number, checked_whole
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_shape,
    embeddings,
    require_batch,
    warn_counted,
)
from coulomb.losses.classes import by_class, checked_smoothing, class_labels, class_scores, known_of, reduced_over
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.options import Loss
from coulomb.similarity.problem import LOG2E
from coulomb.similarity.products import product, transposed_product


def _checked_angle(name: str, value: Any) -> float:
    angle = checked_number(name, value, at_least=0)
    if angle >= math.pi:
        radians = f"; {angle:g} degrees are {name}={math.radians(angle):.4g}" if angle < 180 else ""
        raise ValueError(f"{name}={angle:g}: the margin is an angle in radians, in [0, π){radians}")
    return angle


class ArcFaceLoss(Loss):
    """L_i = softplus(LSE_{c≠y} s·cos θ_ic − s·cos(θ_iy + m)),  θ_ic the angle to centre w_c   (Deng et al., 2019)

    The loss owns the centres [C, D]: give ``loss.parameters()`` to the optimizer as well. The logits [B, C] are not
    stored once they are more than the engine keeps, so a million classes fit. Beyond θ + m > π, where cos(θ + m) would
    rise again, the target is s·(cos θ − m·sin m).

    When to use: labels for all, many classes, and the angles are what will be used: faces, products, retrieval of
    classes never seen.
    Needs: labels. The centres belong to the loss.
    Temperature: s is 1/τ (64: τ = 0.016). The own angle must be smaller than all others by the margin m; a large m may
    keep training from getting going, where a smaller one or ``easy_margin`` helps.
    Cost: 6u, u = B·C·D (8u for ``reduction="none"``); memory linear.
    Reference: Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019,
    arXiv:1801.07698.

    Args:
        num_classes: C.
        dim: D.
        scale: s, 64 as in the paper.
        margin: m in radians, 0.5 as in the paper; 0 is a cosine classifier.
        label_smoothing: ε, 0 for none, on the logits with margin: (1−ε)(LSE − t_y) + ε(LSE − mean_c t_c).
        easy_margin: apply the margin only where cos θ > 0, and plain cos θ elsewhere.
        generator: for the centres' start, normal with standard deviation 0.01 (only the direction counts).
        normalize: scale features and centres to unit length; False promises that they are.
        reduction: ``"mean"`` over samples with a known label, ``"sum"``, or ``"none"`` ([B]).
        diagnose: return (loss, `Diagnosis`); the positive is the own centre, the negatives are the others.

    Call with features [B, D] and labels [B] (−1: unknown). `logits` gives the plain s·cos θ for predictions.

    Deviations from the authors' code: it adds the margin outside the graph, so that the target's gradient is the one
    without margin; here it is the true one, s·sin(θ+m)/sin θ (where cos θ rounds to ±1, and sin θ to 0, the part that
    is infinite counts as 0). Their newer code does nothing beyond θ + m > π; this is what their first one did.
    Degenerate input: an unknown label has loss 0 and is left out of the mean; a `CoulombWarning` counts them (not in a
    compiled graph). A single class has loss 0 and a warning.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> loss = ArcFaceLoss(num_classes=2, dim=2, scale=1.0, margin=math.pi / 2)
    >>> with torch.no_grad():
    ...     _ = loss.centers.copy_(torch.eye(2))
    >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # both logits are cos 90°: ln 2
    tensor(0.6931, grad_fn=<KnownBackward>)
    """

    checks: ClassVar = {
        "scale": partial(checked_number, above=0),
        "margin": _checked_angle,
        "label_smoothing": checked_smoothing,
        "easy_margin": checked_flag,
    }

    def __init__(
        self,
        num_classes: int,
        dim: int,
        scale: float = 64.0,
        margin: float = 0.5,
        *,
        label_smoothing: float = 0.0,
        easy_margin: bool = False,
        generator: torch.Generator | None = None,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
    ) -> None:
        super().__init__()
        num_classes, dim = checked_whole("num_classes", num_classes), checked_whole("dim", dim)
        self.scale, self.margin, self.easy_margin = scale, margin, easy_margin
        self.label_smoothing = label_smoothing
        self.normalize = normalize
        self.reduction = reduction
        self.diagnose = diagnose
        self.centers = nn.Parameter(torch.empty(num_classes, dim))
        nn.init.normal_(self.centers, std=0.01, generator=generator)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        check_shape("features", features)
        check_shape("centers", self.centers, like=features)
        require_batch("features", features)
        labels, all_known = class_labels(labels, len(features), len(self.centers), features)
        plainly = all_known and self.normalize and len(self.centers) > 1
        plainly = plainly and not (self.diagnose or self.label_smoothing)
        if at_once.fits(len(features), len(self.centers), features, reduction=self.reduction, plainly=plainly):
            find = partial(self._at_once, features, self.centers, labels)
            return at_once.known(find, partial(self._streamed, labels, True), features, self.centers)
        return self._streamed(labels, all_known, features, self.centers)

    def _at_once(self, features: Tensor, centers: Tensor, labels: Tensor, learning: bool) -> at_once.Found:
        rows = at_once.Rows(("features",), (features,), normalize=True)
        keys = at_once.Rows(("centers",), (centers,), normalize=True)
        first, second = at_once.alike(rows.unit, keys.unit)
        t, place = at_once.exponents(first, second, self.scale), labels[:, None]
        cos = t.gather(1, place).div_(self.scale * LOG2E)
        t.scatter_(1, place, at_once.HIDDEN)
        total, lse = at_once.softmax_(t, within=at_once.within_range(t, self.scale, rows, keys))
        loss, pull = at_once.pulled(lse[:, None], self._with_margin(cos) * (self.scale * LOG2E), self.reduction)
        if not learning:
            return loss, ()
        gradient, factor = t.mul_(pull / total[:, None]), at_once.factor_of(self.reduction, len(labels))
        gradient.scatter_(1, place, pull.mul_(self._slope(cos)).neg_())
        grad_centers = keys.back(transposed_product(gradient, first), self.scale * factor)
        return loss, (*rows.back(product(gradient, second.T), self.scale * factor), *grad_centers)

    def _streamed(
        self, labels: Tensor, all_known: bool, features: Tensor, centers: Tensor
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        known = None if all_known else known_of(labels)
        features = embeddings("features", features, normalize=self.normalize)
        centers = embeddings("centers", centers, normalize=self.normalize, like=features)
        classes = len(centers)
        scores = class_scores(
            features, centers, labels, scale=self.scale, unit=self.normalize, mean=self.label_smoothing > 0
        )
        own = self.scale * self._with_margin(scores.own / self.scale)
        loss = scores.loss(own, known)
        if scores.mean is not None:
            mean = scores.mean + (own - scores.own) / classes
            loss = loss + self.label_smoothing * (own - mean)
        if classes == 1:
            warn_counted(len(labels), len(labels), "samples have one class to choose from: the loss teaches nothing")
        loss = reduced_over(loss, known, self.reduction)
        if self.diagnose:
            similarity = by_class(features, centers, labels, scale=self.scale, bias=None, unit=self.normalize)
            lse = scores.rest if known is None else None  # without a label all centres are negatives
            return loss, diagnose_rows(similarity, lse=lse, positive=scores.own, has_positive=known)
        return loss

    def logits(self, features: Tensor) -> Tensor:
        """s·cos θ, [B, C], without margin: for predictions."""
        features = embeddings("features", features, normalize=self.normalize)
        centers = embeddings("centers", self.centers, normalize=self.normalize, like=features)
        return self.scale * linear(features.to(centers.dtype), centers)

    def _with_margin(self, cos: Tensor) -> Tensor:
        """cos(θ + m), and its continuation where θ + m > π (or θ > π/2)."""
        moved = cos * math.cos(self.margin) - _sine(cos) * math.sin(self.margin)
        if self.easy_margin:
            return torch.where(cos > 0, moved, cos)
        return torch.where(cos > -math.cos(self.margin), moved, cos - self.margin * math.sin(self.margin))

    def _slope(self, cos: Tensor) -> Tensor:
        """The derivative of `_with_margin`."""
        slope = (cos / _sine(cos)).mul_(math.sin(self.margin)).add_(math.cos(self.margin))
        return torch.where(cos > (0 if self.easy_margin else -math.cos(self.margin)), slope, 1)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        classes, dim = self.centers.shape
        return (
            f"num_classes={classes}, dim={dim}, scale={self.scale:g}, margin={self.margin:g}, "
            f"label_smoothing={self.label_smoothing:g}, easy_margin={self.easy_margin}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}"
        )


def _sine(cos: Tensor) -> Tensor:
    """sin θ ≥ 0, never 0."""
    return ((1 - cos) * (1 + cos)).clamp_min(torch.finfo(cos.dtype).tiny).sqrt()
