"""Softmax cross-entropy and balanced softmax over class centers, which may be a million."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar
from typing import Annotated

from torch import Tensor

from coulomb.losses.classes import checked_counts, class_scores
from coulomb.losses.inputs import reduced
from coulomb.losses.options import Flag, Loss, Reduction, Share, Tau
from coulomb.losses.temperature import scale_of


class SoftmaxLoss(Loss):
    """L_i = LSE_c s_ic − s_iy = softplus(LSE_{c≠y} s_ic − s_iy),  s_ic = f_i·w_c/τ + b_c   (softmax cross-entropy)

    Equals ``cross_entropy(linear(features, centers, bias), labels)``, but large logits [B, C] are not stored. With label
    smoothing ε: (1−ε)(LSE − s_iy) + ε(LSE − mean_c s_ic).

    When to use: all samples are labeled and you need a classifier, with up to millions of classes; or exact instance
    discrimination, with instances as classes and a memory bank as centers.
    Needs: labels, and centers (the weight of a linear layer).
    Temperature: with ``normalize=True`` the logits lie in ±1/τ, and the loss is at least log(1 + (C−1)e^{−2/τ}): the more
    classes, the lower τ must be. Without it, the lengths of features and centers play this role.
    Cost: 6u with u = B·C·D (8u for ``reduction="none"``); 4u with frozen features or centers. Memory is linear in B and C.
    Reference: label smoothing: Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016,
    arXiv:1512.00567.

    Args:
        label_smoothing: ε in [0, 1); 0 for none.
        temperature: τ, or a `LearnableTemperature`; 1, as in a plain classifier. It does not divide the bias.
        normalize: scale features and centers to unit length (a cosine classifier, with τ about 0.05). Off by default, unlike
            in the contrastive losses.
        reduction: ``"mean"`` over samples with a known label, ``"sum"``, or ``"none"`` ([B]).

    Shape:
        features: [B, D].
        labels: [B].
        centers: [C, D].
        bias: [C].
        output: scalar, or [B] with ``reduction="none"``.

    For a linear layer: ``loss(features, labels, layer.weight, layer.bias)``. Predictions: ``linear(features, centers,
    bias).argmax(1)``.

    Deviation: none; the values equal `torch.nn.functional.cross_entropy`.
    Degenerate input: a sample with an unknown label has a loss of 0 and is left out of the mean; a `CoulombWarning` counts
    them (not in a compiled graph). With a single class the loss is 0 and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> SoftmaxLoss()(torch.zeros(2, 3), torch.tensor([0, 4]), torch.ones(5, 3))  # ln 5
    tensor(1.6094)
    """

    label_smoothing: Share = 0.0
    temperature: Tau = 1.0
    _: KW_ONLY
    normalize: Flag = False
    reduction: Reduction = "mean"

    def forward(self, features: Tensor, labels: Tensor, centers: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the loss.

        Args:
            features: encoder outputs.
            labels: class of each sample, −1 for unknown.
            centers: weight of the classifier.
            bias: bias of the classifier, or None.
        """
        return cross_entropy(self, features, labels, centers, bias)


class BalancedSoftmaxLoss(Loss):
    """L_i = LSE_c (s_ic + log π_c) − (s_iy + log π_y),  π_c = n_c/Σn   (Ren et al., 2020)

    Softmax cross-entropy for long-tailed training sets: in training, the log frequency of each class is added to its logit;
    predictions use the plain logits s, as if all classes were equally frequent.

    When to use: a classifier that treats all classes equally, trained on long-tailed labels.
    Needs: labels, centers, and the class counts of the data as it is sampled: with class-balanced sampling all counts are
    equal, and this is `SoftmaxLoss`.
    Temperature: as in `SoftmaxLoss`; it does not divide log π.
    Cost: 6u with u = B·C·D (8u for ``reduction="none"``); 4u with frozen features or centers. Memory is linear in B and C.
    Reference: Ren et al., Balanced Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020, arXiv:2007.10740.

    Args:
        class_counts: training images per class, [C], all positive; stored as a buffer.
        label_smoothing, temperature, normalize, reduction: as in `SoftmaxLoss`.

    Shape:
        features: [B, D].
        labels: [B].
        centers: [C, D].
        bias: [C].
        output: scalar, or [B] with ``reduction="none"``.

    For a linear layer: ``loss(features, labels, layer.weight, layer.bias)``. Predictions: ``linear(features, centers,
    bias).argmax(1)``.

    Deviation: the authors add log n_c; log π_c differs by a constant, which cancels, and is smaller.
    Degenerate input and Raises: as for `SoftmaxLoss`.

    >>> loss = BalancedSoftmaxLoss([90, 10])
    >>> loss(torch.zeros(1, 2), torch.tensor([1]), torch.zeros(2, 2))  # −ln 0.1
    tensor(2.3026)
    """

    class_counts: InitVar[Annotated[Tensor | Sequence[float], checked_counts]]
    label_smoothing: Share = 0.0
    temperature: Tau = 1.0
    _: KW_ONLY
    normalize: Flag = False
    reduction: Reduction = "mean"

    def __post_init__(self, class_counts: Tensor | Sequence[float]) -> None:
        self.register_buffer("class_counts", checked_counts("class_counts", class_counts))

    def forward(self, features: Tensor, labels: Tensor, centers: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns the loss.

        Args:
            features: encoder outputs.
            labels: class of each sample, −1 for unknown.
            centers: weight of the classifier.
            bias: bias of the classifier, or None.
        """
        return cross_entropy(self, features, labels, centers, bias, self.get_buffer("class_counts"))


def cross_entropy(
    loss: SoftmaxLoss | BalancedSoftmaxLoss,
    features: Tensor,
    labels: Tensor,
    centers: Tensor,
    bias: Tensor | None,
    counts: Tensor | None = None,
) -> Tensor:
    """Returns softplus(LSE_{c≠y} s_ic − s_iy), with the label smoothing and the reduction of ``loss``."""
    scale, normalize = scale_of(loss.temperature), loss.normalize
    scores = class_scores(features, labels, centers, scale=scale, bias=bias, counts=counts, normalize=normalize)
    losses = scores.contrast(scores.target)
    if loss.label_smoothing:  # (1 − ε)(LSE − target) + ε(LSE − mean)
        losses = losses + loss.label_smoothing * (scores.target - scores.similarity.mean("all"))
    return reduced(losses, loss.reduction, scores.known)
