"""Triplet: embeddings closer to their own class than to any other, by a margin."""

import math
from typing import ClassVar

from torch import Tensor

from coulomb.losses import TripletLoss
from coulomb.methods.interface import OneColumn, Traits, labeled_rows
from coulomb.models import Tower, ViewRows


class Triplet(OneColumn):
    """Triplets mined in the batch (FaceNet, Schroff et al., 2015; batch-hard: Hermans et al., 2017).

        z = head(encoder(view))                     head: one linear layer
        loss = mean max(d(a, p) − d(a, n) + m, 0)   a, p of one label, n of another; over all views of the batch

    Images without a label are not used. Two views of an image are a positive pair, so that every anchor has one.

    Args:
        tower: encoder and head; one layer of 128, as in FaceNet (Hermans et al.: 2 layers, with batch norm).
        margin: m; .2 in FaceNet.
        mining: ``all``, ``semihard`` (FaceNet) or ``hard`` (batch-hard).
        soft: softplus(d_ap − d_an) instead of the hinge.
        distance: ``cosine`` or ``euclidean`` (on the sphere).
    """

    default_head: ClassVar = {"head_layers": 1, "batch_norm": False}
    traits = Traits(floor="zero")
    local_mean = False

    needs_labels = True
    least_views = 1
    labeled_only = True

    def __init__(
        self,
        tower: Tower,
        *,
        margin: float = 0.2,
        mining: str = "semihard",
        soft: bool = False,
        distance: str = "euclidean",
    ):
        super().__init__(tower)
        self.criterion = TripletLoss(margin, mining, soft, distance)

    def forward(self, views: ViewRows, labels: Tensor, train_row: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Returns the loss of a batch, a scalar: labels [N] (−1: left out)."""
        rows, labels = labeled_rows(self.embed(views), labels)
        return self.criterion(rows, labels) if len(rows) else rows.sum()

    def no_signal(self, batch: int, views: int) -> float | None:
        """Returns the loss when all distances are equal: m, or ln 2 for ``soft``; None if there is no semi-hard triplet."""
        if self.criterion.mining == "semihard":
            return None
        return math.log(2) if self.criterion.soft else self.criterion.margin

    def floor(self, batch: int, views: int) -> float | None:
        """Returns 0, reached when every negative is farther than every positive by the margin; None for ``soft``."""
        return None if self.criterion.soft else 0.0
