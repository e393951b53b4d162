"""VICReg: two views agree, and their dimensions vary without covarying; no negatives."""

from typing import ClassVar, Unpack

from coulomb.losses import VICRegLoss
from coulomb.losses.vicreg import EPSILON
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits
from coulomb.models import Encoder


class VICReg(ProjectionMethod):
    """Variance-invariance-covariance regularization (Bardes et al., 2022).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = VICReg(z0, z1)           λ·distance of the views + μ·hinge on the deviations + ν·covariances

    Embeddings are not normalized. More dimensions are better; the loss takes O(N·D²).

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width D of the head (default: 2048; paper: 8192).
        head_layers: linear layers in the head (default and paper: 3).
        head_hidden_dim: width between them (default: 2048; paper: 8192).
        invariance, variance, covariance: λ, μ and ν; 25, 25 and 1 in the paper.
        seed: seed of the head's initial weights.
    """

    default_head: ClassVar[HeadOptions] = {"embedding_dim": 2048, "head_layers": 3, "head_hidden_dim": 2048}
    traits = Traits(floor="zero", normalized=False)
    local_mean = False
    most_views = 2

    def __init__(
        self,
        encoder: Encoder,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, **head)
        self.criterion = VICRegLoss(invariance, variance, covariance)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, .99·μ."""
        return self.criterion.variance * (1 - EPSILON**0.5)

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: equal views, deviations of at least 1, no covariance."""
        return 0.0
