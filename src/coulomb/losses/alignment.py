"""Alignment: the distance between the two views of a sample."""

from dataclasses import KW_ONLY
from typing import Annotated

import torch
from torch import Tensor

from coulomb.losses.inputs import paired_rows, reduced
from coulomb.losses.options import Flag, Loss, Reduction, number


class AlignmentLoss(Loss):
    """L_i = ‖x_i − y_i‖^α   (Wang & Isola, 2020)

    Half of what contrastive losses do; the other is `UniformityLoss`. With unit rows and α = 2 this is 2 − 2cos.

    When to use: to train, or to watch, what contrastive losses do by implication. Always beside `UniformityLoss`: alone
    it is least when all samples lie in one place.
    Needs: two views of each sample. No labels, no negatives.
    Temperature: none. α says how much far pairs count: the pull grows as ‖x−y‖^(α−1), so α = 1 pulls all pairs alike
    and a larger α cares for the far ones.
    Cost: O(N·D).
    Reference: Wang & Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere, ICML 2020, arXiv:2005.10242.

    Args:
        alpha: α ≥ 1; 2 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over samples, ``"sum"``, or ``"none"`` ([N]).

    Call with x [N, D] and y [N, D], both views of the same samples.

    Deviation: the authors leave the scaling to unit length to the caller.
    Degenerate input: equal x_i and y_i have loss 0 and gradient 0, also for α = 1. A row of zeros gets no gradient, and
    is counted in a `CoulombWarning`.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> AlignmentLoss()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor(2.)
    """

    alpha: Annotated[float, number(at_least=1)] = 2.0
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss; see the class."""
        x, y = paired_rows(("x", "y"), x, y, normalize=self.normalize).chunk(2)
        squared = (x - y).square().sum(1)
        if self.alpha == 2:
            return reduced(squared, self.reduction)
        apart = squared > 0  # the root has no derivative at 0
        distance = torch.where(apart, squared, 1) ** (self.alpha / 2)
        return reduced(torch.where(apart, distance, 0), self.reduction)
