"""Hard negatives: SimCLR's batch, in which near negatives count more."""

import math

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.losses import HardNegativeLoss
from coulomb.models import Encoder, projection_head


class Hard(nn.Module):
    """Contrastive learning with hard negative samples (HCL; Robinson et al., 2021).

        z = head(encoder(view))                 all views in one pass, so batch norm sees them together
        loss = HardNegative(z0, z1; β, τ⁺)      negatives weighed by e^{β·s}, and debiased by τ⁺

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ; .5 in the paper.
        embedding_dim: output width of the head (paper: 128).
        head_layers: linear layers in the head (paper: 2).
        head_hidden_dim: width between them (paper: 512); None means the feature width.
        beta: β ≥ 0, how much nearer negatives are preferred; 1 in the authors' code. 0 is `Debiased`.
        tau_plus: τ⁺, the chance that a random image has the anchor's class; .1 in the paper (10 classes).
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
        beta: float = 1.0,
        tau_plus: float = 0.1,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim, hidden_dim=head_hidden_dim, out_dim=embedding_dim, layers=head_layers, seed=seed
        )
        self.criterion = HardNegativeLoss(temperature, beta, tau_plus)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: two views [B, C, H, W]; returns a scalar."""
        if len(views) != 2:
            raise InputError(f"n_views={len(views)}: the hard-negative loss is of pairs, use 2")
        loss: Tensor = self.criterion(*self.head(self.encoder(torch.cat(views))).chunk(2))
        return loss

    def no_signal(self, batch: int, views: int) -> float:
        """The loss when all embeddings of all processes' images (``batch``) are alike, ln(2N − 1)."""
        return math.log(max(batch * views - 1, 1))
