"""SimCLR: two views of an image attract, all other views in the batch repel."""

import math

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.losses import NTXentLoss
from coulomb.methods.both_ways import BothWays
from coulomb.metrics.loss_floor import infonce_at
from coulomb.models import Encoder, projection_head


class SimCLR(nn.Module):
    """One encoder, one projection head, NT-Xent over the batch (Chen et al., 2020).

        z = head(encoder(view))         all views in one pass, so batch norm sees them together
        loss = NT-Xent(z)               mean over all n·N views as anchors

    Labels are never looked at. After training the head is dropped.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ of NT-Xent; .5 for CIFAR, .1 for ImageNet in the paper.
        embedding_dim: output width of the head (paper: 128).
        head_layers: linear layers in the head (paper: 2; the authors' second version: 3).
        head_hidden_dim: width between them; None means the feature width, as in the paper.
        loss: ``"contrastive"``: NT-Xent; or one of Wang & Liu's (2021) on two views: ``"hard"``, ``"simple"``,
            ``"hard_simple"``; see `BothWays`.
        top_k: negatives that count in the hard losses; None: half of those in the batch. The paper's share, 4095 of 50,000,
            would be a twelfth, which collapses on digits; see `HardContrastiveLoss`.
        seed: of the head's first weights.
    """

    needs_labels = False

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.5,
        embedding_dim: int = 128,
        head_layers: int = 2,
        head_hidden_dim: int | None = None,
        loss: str = "contrastive",
        top_k: int | None = None,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim,
            hidden_dim=head_hidden_dim,
            out_dim=embedding_dim,
            layers=head_layers,
            seed=seed,
        )
        self.temperature = temperature
        self.criterion = (
            NTXentLoss(temperature=temperature) if loss == "contrastive" else BothWays(loss, temperature, top_k)
        )

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: ``views`` is a list of n tensors [B, C, H, W]; returns a scalar."""
        if len(views) < 2:
            raise InputError(f"n_views={len(views)}: SimCLR needs 2, each the other's positive")
        embeddings = self.head(self.encoder(torch.cat(views)))
        return self.criterion(torch.stack(embeddings.chunk(len(views)), dim=1))

    def no_signal(self, batch: int, views: int) -> float:
        """The loss when all embeddings of all processes' images (``batch``) are alike, ln(n·N − 1): a run must get below."""
        if isinstance(self.criterion, BothWays):
            return self.criterion.no_signal(batch)
        return math.log(max(batch * views - 1, 1))

    def floor(self, batch: int, views: int) -> float | None:
        """The least loss of any embeddings, ln(1 + (2N − 2)·exp(−(1 + 1/(N − 1))/τ)), with two views; else None.

        The views of an image coincide, and the N images of all processes (``batch``) form a regular simplex, cos =
        −1/(N − 1): the least by the convexity of log Σ exp and Σᵢⱼ zᵢ·zⱼ ≥ 0.
        """
        if isinstance(self.criterion, BothWays) or views != 2 or batch < 2:
            return None
        return infonce_at(2 * batch - 2, self.temperature, -1 / (batch - 1))
