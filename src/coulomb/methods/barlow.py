"""Barlow Twins: the cross-correlation of two views becomes the identity; no negatives."""

from typing import ClassVar

from coulomb.losses import BarlowTwinsLoss
from coulomb.methods.interface import OneColumn, Traits
from coulomb.models import Tower


class BarlowTwins(OneColumn):
    """Redundancy reduction (Zbontar et al., 2021).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = BarlowTwins(z0, z1)      Σ (1 − c_dd)² + λ Σ c_de², c the correlation of the views' dimensions over the batch

    More dimensions are better; the loss takes O(N·D²).

    Args:
        tower: encoder and head; the head has 3 layers of 2048 (paper: 3 of 8192).
        weight: λ; .0051 in the paper. It should grow as D falls.
    """

    default_head: ClassVar = {"embedding_dim": 2048, "head_layers": 3, "head_hidden_dim": 2048}
    traits = Traits(floor="zero")
    local_mean = False
    most_views = 2

    def __init__(self, tower: Tower, *, weight: float = 0.0051):
        super().__init__(tower)
        self.criterion = BarlowTwinsLoss(weight)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when the views have no correlation, D; also the loss for equal embeddings."""
        return float(self.tower.embedding_dim)

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: the correlation is the identity."""
        return 0.0
