"""Triplet: nearer to one's own class than to any other, by a margin."""

import math

import torch
from torch import Tensor, nn

from coulomb.losses import TripletLoss
from coulomb.methods.labelled import known_rows
from coulomb.models import Encoder, projection_head


class Triplet(nn.Module):
    """Triplets mined in the batch (FaceNet, Schroff et al., 2015; batch-hard: Hermans et al., 2017).

        z = head(encoder(view))                     head: one linear layer
        loss = mean max(d(a, p) − d(a, n) + m, 0)   a, p of one label, n of another; all views of the batch take part

    Images without a label are not trained on. Two views of an image are a positive pair, so every anchor has one.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of the head (FaceNet: 128).
        head_layers, head_hidden_dim: as in SimCLR, without batch norm (papers: 1; Hermans et al.: 2 with it).
        margin: m; .2 in FaceNet.
        mining: ``all``, ``semihard`` (FaceNet) or ``hard`` (batch-hard).
        soft: softplus(d_ap − d_an) instead of the hinge.
        distance: ``cosine`` or ``euclidean`` (on the sphere).
        seed: of the head's first weights.
    """

    needs_labels = True
    labelled_only = True

    def __init__(
        self,
        encoder: Encoder,
        *,
        embedding_dim: int = 128,
        head_layers: int = 1,
        head_hidden_dim: int | None = None,
        margin: float = 0.2,
        mining: str = "semihard",
        soft: bool = False,
        distance: str = "euclidean",
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim,
            hidden_dim=head_hidden_dim,
            out_dim=embedding_dim,
            layers=head_layers,
            batch_norm=False,
            seed=seed,
        )
        self.criterion = TripletLoss(margin, mining, soft, distance)

    def forward(self, views: list[Tensor], labels: Tensor, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each and labels [B] (−1: left out); returns a scalar."""
        rows, labels = known_rows(self.head(self.encoder(torch.cat(views))), labels, len(views))
        return self.criterion(rows, labels) if len(rows) else rows.sum()

    def no_signal(self, batch: int, views: int) -> float | None:
        """The loss when all distances are alike: m, or ln 2 for ``soft``; semi-hard triplets then do not exist: None."""
        if self.criterion.mining == "semihard":
            return None
        return math.log(2) if self.criterion.soft else self.criterion.margin

    def floor(self, batch: int, views: int) -> float | None:
        """0, where every negative is farther than every positive by the margin; ``soft`` never quite gets there: None."""
        return None if self.criterion.soft else 0.0
