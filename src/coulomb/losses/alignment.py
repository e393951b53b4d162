"""Alignment: the distance between the two views of a sample."""

from dataclasses import KW_ONLY
from typing import Annotated

import torch
from torch import Tensor

from coulomb.ground.checked import number
from coulomb.losses.inputs import paired_rows, reduced
from coulomb.losses.options import Flag, Loss, Reduction


class AlignmentLoss(Loss):
    """L_i = ‖x_i − y_i‖^α   (Wang & Isola, 2020)

    One of the two properties that contrastive losses optimize; the other is `UniformityLoss`. For unit rows and α = 2,
    L_i = 2 − 2cos.

    When to use: to optimize or monitor directly what contrastive losses optimize implicitly. For training, add
    `UniformityLoss`, because alignment by itself is minimal when all embeddings are equal.
    Needs: two views of each sample. No labels, no negatives.
    Temperature: none. The gradient of a pair grows as ‖x − y‖^(α−1): with α = 1 all pairs are pulled with equal force,
    with a larger α distant pairs are pulled more.
    Cost: O(N·D).
    Reference: Wang & Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere, ICML 2020, arXiv:2005.10242.

    Args:
        alpha: α ≥ 1; 2 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over samples, ``"sum"``, or ``"none"`` ([N]).

    Shape:
        x, y: [N, D].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: the authors' function expects rows of unit length.
    Degenerate input: where x_i = y_i, the loss and its gradient are 0, also for α = 1. A row of zeros gets no gradient;
    a `CoulombWarning` counts such rows.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> AlignmentLoss()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(2.)
    """

    alpha: Annotated[float, number(at_least=1)] = 2.0
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            x: embeddings of one view of each sample.
            y: embeddings of another view of the same samples.
        """
        x, y = paired_rows(("x", "y"), x, y, normalize=self.normalize).chunk(2)
        squared = (x - y).square().sum(1)
        if self.alpha == 2:
            return reduced(squared, self.reduction)
        apart = squared > 0  # the root has no derivative at 0
        distance = torch.where(apart, squared, 1) ** (self.alpha / 2)
        return reduced(torch.where(apart, distance, 0), self.reduction)
