"""Barlow Twins: the cross-correlation of two views becomes the identity; no negatives."""

from typing import ClassVar, Unpack

from coulomb.losses import BarlowTwinsLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits
from coulomb.models import Encoder


class BarlowTwins(ProjectionMethod):
    """Redundancy reduction (Zbontar et al., 2021).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = BarlowTwins(z0, z1)      Σ (1 − c_dd)² + λ Σ c_de², c the correlation of the views' dimensions over the batch

    More dimensions are better; the loss takes O(N·D²).

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width D of the head (default: 2048; paper: 8192).
        head_layers: linear layers in the head (default and paper: 3).
        head_hidden_dim: width between them (default: 2048; paper: 8192).
        weight: λ; .0051 in the paper. It should grow as D falls.
        seed: seed of the head's initial weights.
    """

    default_head: ClassVar[HeadOptions] = {"embedding_dim": 2048, "head_layers": 3, "head_hidden_dim": 2048}
    traits = Traits(floor="zero")
    local_mean = False
    most_views = 2

    def __init__(self, encoder: Encoder, *, weight: float = 0.0051, seed: int = 0, **head: Unpack[HeadOptions]):
        super().__init__(encoder, seed=seed, **head)
        self.criterion = BarlowTwinsLoss(weight)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when the views have no correlation, D; also the loss for equal embeddings."""
        return float(self.embedding_dim)

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: the correlation is the identity."""
        return 0.0
