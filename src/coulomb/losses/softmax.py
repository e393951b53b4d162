"""Softmax cross-entropy and balanced softmax over class centres, which may be a million."""

import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from coulomb.checked import abstract
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_shape,
    embeddings,
    require_batch,
    require_dense,
    warn_counted,
)
from coulomb.losses.classes import (
    checked_counts,
    checked_smoothing,
    class_labels,
    class_scores,
    known_of,
    log_frequencies,
    reduced_over,
)
from coulomb.losses.options import Loss
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.losses.unit_rows import rows_of
from coulomb.similarity.exact import linear
from coulomb.similarity.problem import eager, full_precision

SMALL_LOSS = 0.01  # below this mean, log-softmax's cancellation costs digits that a user may see


class SoftmaxLoss(Loss):
    """L_i = LSE_c s_ic − s_iy = softplus(LSE_{c≠y} s_ic − s_iy),  s_ic = f_i·w_c/τ + b_c   (softmax cross-entropy)

    The same as ``cross_entropy(linear(features, centers, bias), labels)``, but the logits [B, C] are not stored once
    they are more than the engine keeps. With label smoothing ε: (1−ε)(LSE − s_iy) + ε(LSE − mean_c s_ic).

    When to use: labels for all and a classifier wanted, up to millions of classes; or the exact instance
    discrimination, with the instances as classes and a memory bank as centres.
    Needs: labels, and centres (a linear layer's weight).
    Temperature: with ``normalize=True`` the logits lie in ±1/τ, and the loss cannot fall below log(1 + (C−1)e^{−2/τ}):
    the more classes, the lower must τ be. Without, the lengths of features and centres do its work.
    Cost: 6u, u = B·C·D (8u for ``reduction="none"``); 4u with frozen features or centres; memory linear.
    Reference: label smoothing: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016,
    arXiv:1512.00567.

    Args:
        label_smoothing: ε, 0 for none.
        temperature: τ, or a `LearnableTemperature`; 1, as in a plain classifier. It does not divide the bias.
        normalize: scale features and centres to unit length (a cosine classifier, with τ about 0.05). Off, unlike in
            the contrastive losses: a plain classifier does not normalise.
        reduction: ``"mean"`` over samples with a known label, ``"sum"``, or ``"none"`` ([B]).

    Call with features [B, D], labels [B] (−1: unknown), centers [C, D] and optionally bias [C]: for a linear layer,
    ``loss(features, labels, layer.weight, layer.bias)``. Predictions: ``linear(features, centers, bias).argmax(1)``.

    Deviation: none; the values are those of `torch.nn.functional.cross_entropy`.
    Degenerate input: an unknown label has loss 0 and is left out of the mean; a `CoulombWarning` counts them (not in a
    compiled graph). A single class has loss 0 and a warning.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> SoftmaxLoss()(torch.zeros(2, 3), torch.tensor([0, 4]), torch.ones(5, 3))  # ln 5
    tensor(1.6094)
    """

    checks: ClassVar = {"label_smoothing": checked_smoothing, "temperature": checked_temperature}

    def __init__(
        self,
        label_smoothing: float = 0.0,
        temperature: Temperature = 1.0,
        *,
        normalize: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.temperature = temperature
        self.normalize = normalize
        self.reduction = reduction

    def forward(self, features: Tensor, labels: Tensor, centers: Tensor, bias: Tensor | None = None) -> Tensor:
        """The loss; see the class."""
        check_shape("features", features)
        check_shape("centers", centers, like=features)
        require_batch("features", features)
        require_batch("centers", centers)
        features, centers = at_once.alike(features, centers)
        labels, all_known = class_labels(labels, len(features), len(centers), features)
        bias, scale = self._column_bias(bias, centers), scale_of(self.temperature)
        plainly = all_known and len(centers) > 1
        if at_once.fits(len(features), len(centers), features, reduction=self.reduction, plainly=plainly):
            loss = self._plain(features, labels, centers, bias, scale)
            if loss is not None:
                return loss
        known = None if all_known else known_of(labels)
        features = embeddings("features", features, normalize=self.normalize)
        centers = embeddings("centers", centers, normalize=self.normalize, like=features)
        scores = class_scores(
            features,
            centers,
            labels,
            scale=scale,
            bias=bias,
            unit=self.normalize,
            mean=self.label_smoothing > 0,
        )
        loss = scores.loss(scores.own, known)
        if scores.mean is not None:
            loss = loss + self.label_smoothing * (scores.own - scores.mean)
        if len(centers) == 1:
            warn_counted(len(labels), len(labels), "samples have one class to choose from: the loss teaches nothing")
        return reduced_over(loss, known, self.reduction)

    def _plain(
        self, features: Tensor, labels: Tensor, centers: Tensor, bias: Tensor | None, scale: float | Tensor
    ) -> Tensor | None:
        """torch's own `cross_entropy`, of labels that are known; None where it is not exact enough or something is wrong."""
        if self.normalize:
            features = embeddings("features", features, normalize=True)
            centers = embeddings("centers", centers, normalize=True)
        logits = linear(features if isinstance(scale, float) and scale == 1 else features * scale, centers, bias)
        with full_precision(features):
            loss = cross_entropy(logits, labels, reduction=self.reduction, label_smoothing=self.label_smoothing)
        mean = loss.item() / (len(labels) if self.reduction == "sum" else 1)
        finite = SMALL_LOSS < mean < math.inf and math.isfinite(centers.detach().sum().item())
        return loss if finite else None

    def _column_bias(self, bias: Tensor | None, centers: Tensor) -> Tensor | None:
        if bias is None:
            return None
        if not isinstance(bias, Tensor) or not bias.is_floating_point():
            raise TypeError(f"bias must be a floating tensor, got {getattr(bias, 'dtype', type(bias).__name__)}")
        require_dense("bias", bias)
        if bias.shape != centers.shape[:1]:
            raise ValueError(f"bias must have shape [{len(centers)}], one for each center, got {tuple(bias.shape)}")
        if bias.device != centers.device:
            raise ValueError(f"bias is on {bias.device}, centers on {centers.device}")
        return rows_of(("bias",), bias[:, None], normalize=False, products=False)[:, 0].to(centers.dtype)  # finite?

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"label_smoothing={self.label_smoothing:g}, {describe_temperature(self.temperature)}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}"
        )


class BalancedSoftmaxLoss(SoftmaxLoss):
    """L_i = LSE_c (s_ic + log π_c) − (s_iy + log π_y),  π_c = n_c/Σn   (Ren et al., 2020)

    Softmax cross-entropy that allows for a long-tailed training set: at training the log frequency is added to each
    logit; predictions use the plain logits s, as if all classes were equally frequent.

    When to use: a classifier for labels with a long tail that is to treat all classes alike.
    Needs: labels, centres, and the counts of the data as it is drawn: with class-balanced sampling the counts are
    equal, and this is `SoftmaxLoss`.
    Temperature: as in `SoftmaxLoss`; it does not divide log π.
    Cost: 6u, u = B·C·D (8u for ``reduction="none"``); 4u with frozen features or centres; memory linear.
    Reference: Ren et al., Balanced Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020, arXiv:2007.10740.

    Args:
        class_counts: training images of each class, [C], all positive; kept as a buffer.
        label_smoothing, temperature, normalize, reduction: as in `SoftmaxLoss`.

    Call with features [B, D], labels [B], centers [C, D] and optionally bias [C], as for `SoftmaxLoss`.

    Deviation: the authors add log n_c; log π_c differs by a constant, which cancels, and is smaller.
    Degenerate input and Raises: as for `SoftmaxLoss`.

    >>> loss = BalancedSoftmaxLoss([90, 10])
    >>> loss(torch.zeros(1, 2), torch.tensor([1]), torch.zeros(2, 2))  # −ln 0.1
    tensor(2.3026)
    """

    class_counts: Tensor

    checks: ClassVar = {"class_counts": checked_counts}

    def __init__(
        self,
        class_counts: Tensor | Sequence[float],
        label_smoothing: float = 0.0,
        temperature: Temperature = 1.0,
        *,
        normalize: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(label_smoothing, temperature, normalize=normalize, reduction=reduction)
        self.register_buffer("class_counts", checked_counts("class_counts", class_counts))
        self._log_frequency: tuple[Tensor, int, Tensor] | None = None  # of which counts, as changed how often

    def _column_bias(self, bias: Tensor | None, centers: Tensor) -> Tensor:
        counts = self.class_counts
        caching = eager() and not abstract(centers)
        found = self._log_frequency if caching else None
        fresh = found is not None and found[0] is counts and found[1] == counts._version
        alike = found is not None and (found[2].dtype, found[2].device, len(counts)) == (
            centers.dtype,
            centers.device,
            len(centers),
        )
        if found is not None and fresh and alike:
            log_frequency = found[2]
        else:
            log_frequency = log_frequencies(counts, centers, len(centers), "centers")
            if caching:
                self._log_frequency = counts, counts._version, log_frequency
        bias = super()._column_bias(bias, centers)
        return log_frequency if bias is None else bias + log_frequency
