"""Triplet: embeddings closer to their own class than to any other, by a margin."""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from coulomb.losses import TripletLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits, labeled_rows
from coulomb.models import Encoder


class Triplet(ProjectionMethod):
    """Triplets mined in the batch (FaceNet, Schroff et al., 2015; batch-hard: Hermans et al., 2017).

        z = head(encoder(view))                     head: one linear layer
        loss = mean max(d(a, p) − d(a, n) + m, 0)   a, p of one label, n of another; over all views of the batch

    Images without a label are not used. Two views of an image are a positive pair, so that every anchor has one.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of the head (default and FaceNet: 128).
        head_layers, head_hidden_dim: as in SimCLR, without batch norm (default: 1 layer; Hermans et al.: 2, with batch norm).
        margin: m; .2 in FaceNet.
        mining: ``all``, ``semihard`` (FaceNet) or ``hard`` (batch-hard).
        soft: softplus(d_ap − d_an) instead of the hinge.
        distance: ``cosine`` or ``euclidean`` (on the sphere).
        seed: seed of the head's initial weights.
    """

    traits = Traits(floor="zero")
    local_mean = False

    needs_labels = True
    labeled_only = True
    default_head: ClassVar[HeadOptions] = {"head_layers": 1}

    def __init__(
        self,
        encoder: Encoder,
        *,
        margin: float = 0.2,
        mining: str = "semihard",
        soft: bool = False,
        distance: str = "euclidean",
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, batch_norm=False, **head)
        self.criterion = TripletLoss(margin, mining, soft, distance)

    def forward(self, views: list[Tensor], labels: Tensor, index: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Returns the loss of a batch, a scalar: V views [B, C, H, W] and labels [B] (−1: left out)."""
        rows, labels = labeled_rows(self.head(self.encoder(torch.cat(views))), labels, len(views))
        return self.criterion(rows, labels) if len(rows) else rows.sum()

    def no_signal(self, batch: int, views: int) -> float | None:
        """Returns the loss when all distances are equal: m, or ln 2 for ``soft``; None if there is no semi-hard triplet."""
        if self.criterion.mining == "semihard":
            return None
        return math.log(2) if self.criterion.soft else self.criterion.margin

    def floor(self, batch: int, views: int) -> float | None:
        """Returns 0, reached when every negative is farther than every positive by the margin; None for ``soft``."""
        return None if self.criterion.soft else 0.0
