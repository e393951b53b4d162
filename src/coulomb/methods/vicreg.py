"""VICReg: two views agree, and their dimensions vary without covarying; no negatives."""

from typing import ClassVar

from coulomb.losses import VICRegLoss
from coulomb.losses.vicreg import EPSILON
from coulomb.methods.interface import OneColumn, Traits
from coulomb.models import Tower


class VICReg(OneColumn):
    """Variance-invariance-covariance regularization (Bardes et al., 2022).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = VICReg(z0, z1)           λ·distance of the views + μ·hinge on the deviations + ν·covariances

    Embeddings are not normalized. More dimensions are better; the loss takes O(N·D²).

    Args:
        tower: encoder and head; the head has 3 layers of 2048 (paper: 3 of 8192).
        invariance, variance, covariance: λ, μ and ν; 25, 25 and 1 in the paper.
    """

    default_head: ClassVar = {"embedding_dim": 2048, "head_layers": 3, "head_hidden_dim": 2048}
    traits = Traits(floor="zero", normalized=False)
    local_mean = False
    most_views = 2

    def __init__(
        self,
        tower: Tower,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
    ):
        super().__init__(tower)
        self.criterion = VICRegLoss(invariance, variance, covariance)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, .99·μ."""
        return self.criterion.variance * (1 - EPSILON**0.5)

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: equal views, deviations of at least 1, no covariance."""
        return 0.0
