"""ArcFace: softmax over class centers on the sphere, with an angular margin for the class of the sample."""

import math
from dataclasses import KW_ONLY, InitVar
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from coulomb.ground.checked import checked_number, checked_whole
from coulomb.losses.classes import class_scores
from coulomb.losses.diagnosis import Result, diagnose_rows
from coulomb.losses.inputs import reduced, unit_rows
from coulomb.losses.options import Flag, Loss, Positive, Reduction, Share


def _checked_angle(name: str, value: Any) -> float:
    angle = checked_number(name, value, at_least=0)
    if angle >= math.pi:
        radians = f"; {angle:g} degrees are {name}={math.radians(angle):.4g}" if angle < 180 else ""
        raise ValueError(f"{name}={angle:g}: the margin is an angle in radians, in [0, π){radians}")
    return angle


class ArcFaceLoss(Loss):
    """L_i = softplus(LSE_{c≠y} s·cos θ_ic − s·cos(θ_iy + m)),  θ_ic the angle to center w_c   (Deng et al., 2019)

    The loss owns the centers [C, D]: pass ``loss.parameters()`` to the optimizer as well. Large logits [B, C] are not
    stored, so that a million classes fit into memory. For θ + m > π, where cos(θ + m) would rise again, the target is
    s·(cos θ − m·sin m).

    When to use: all samples are labeled, there are many classes, and the angles themselves are used later: faces,
    products, retrieval of unseen classes.
    Needs: labels. The centers belong to the loss.
    Temperature: s is 1/τ (64: τ = 0.016). The angle to the center of the sample's class must be smaller than all others by
    the margin m. A large m may prevent training from starting; a smaller one or ``easy_margin`` helps.
    Cost: 6u with u = B·C·D (8u for ``reduction="none"``). Memory is linear in B and C.
    Reference: Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, CVPR 2019,
    arXiv:1801.07698.

    Args:
        num_classes: C.
        dim: D.
        scale: s, 64 as in the paper.
        margin: m in radians, 0.5 as in the paper; 0 is a cosine classifier.
        label_smoothing: ε, 0 for none, on the logits with margin: (1−ε)(LSE − t_y) + ε(LSE − mean_c t_c).
        easy_margin: apply the margin only where cos θ > 0, and use cos θ elsewhere.
        generator: for the initial centers, normal with standard deviation 0.01 (only the direction matters).
        normalize: scale features and centers to unit length; False assumes that they already are.
        reduction: ``"mean"`` over samples with a known label, ``"sum"``, or ``"none"`` ([B]).
        diagnose: return (loss, `Diagnosis`); the positive is the center of the sample's class, the negatives are the others.

    Shape:
        features: [B, D].
        labels: [B].
        output: scalar, or [B] with ``reduction="none"``.

    `logits` returns s·cos θ without margin, for predictions.

    Deviations from the authors' code: it adds the margin outside the graph, so that the gradient of the target is that
    without margin; here it is exact, s·sin(θ+m)/sin θ (if cos θ rounds to ±1 and sin θ to 0, the infinite part counts
    as 0). Their newer code has no special case for θ + m > π; this loss has the special case of their first code.
    Degenerate input: a sample with an unknown label has a loss of 0 and is left out of the mean; a `CoulombWarning` counts
    them (not in a compiled graph). With a single class the loss is 0 and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> loss = ArcFaceLoss(num_classes=2, dim=2, scale=1.0, margin=math.pi / 2)
    >>> with torch.no_grad():
    ...     _ = loss.centers.copy_(torch.eye(2))
    >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))  # both logits are cos 90°: ln 2
    tensor(0.6931, grad_fn=<MeanBackward0>)
    """

    num_classes: InitVar[int]
    dim: InitVar[int]
    scale: Positive = 64.0
    margin: Annotated[float, _checked_angle] = 0.5
    _: KW_ONLY
    label_smoothing: Share = 0.0
    easy_margin: Flag = False
    generator: InitVar[torch.Generator | None] = None
    normalize: Flag = True
    reduction: Reduction = "mean"
    diagnose: Flag = False

    def __post_init__(self, num_classes: int, dim: int, generator: torch.Generator | None) -> None:
        shape = checked_whole("num_classes", num_classes), checked_whole("dim", dim)
        self.centers = nn.Parameter(torch.empty(shape))
        nn.init.normal_(self.centers, std=0.01, generator=generator)

    def forward(self, features: Tensor, labels: Tensor) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            features: encoder outputs.
            labels: class of each sample, −1 for unknown.
        """
        scores = class_scores(features, labels, self.centers, scale=self.scale, normalize=self.normalize)
        target = self.scale * self._with_margin(scores.target / self.scale)
        losses = scores.contrast(target)
        if self.label_smoothing:  # (1 − ε)(LSE − target) + ε(LSE − mean)
            mean = scores.similarity.mean("all") + (target - scores.target) / len(self.centers)
            losses = losses + self.label_smoothing * (target - mean)
        loss = reduced(losses, self.reduction, scores.known)
        if not self.diagnose:
            return loss
        return loss, diagnose_rows(scores.similarity, positive=scores.target, has_positive=scores.known)

    def logits(self, features: Tensor) -> Tensor:
        """Returns s·cos θ, [B, C], without margin, for predictions."""
        features = unit_rows("features", features, normalize=self.normalize)
        centers = unit_rows("centers", self.centers, normalize=self.normalize, like=features)
        return self.scale * linear(features.to(centers.dtype), centers)

    def _with_margin(self, cos: Tensor) -> Tensor:
        """Returns cos(θ + m); where θ + m > π, cos θ − m·sin m; with ``easy_margin`` cos θ where θ > π/2."""
        sine = ((1 - cos) * (1 + cos)).clamp_min(torch.finfo(cos.dtype).tiny).sqrt()  # never 0
        moved = cos * math.cos(self.margin) - sine * math.sin(self.margin)
        if self.easy_margin:
            return torch.where(cos > 0, moved, cos)
        return torch.where(cos > -math.cos(self.margin), moved, cos - self.margin * math.sin(self.margin))

    def extra_repr(self) -> str:
        """Returns the options for ``print(loss)``."""
        return "num_classes={}, dim={}, ".format(*self.centers.shape) + super().extra_repr()
