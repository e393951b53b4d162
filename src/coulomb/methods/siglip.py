"""SigLIP on two views: every pair of views is classified on its own, as of the same image or not."""

import math
from typing import Unpack

from coulomb.losses import SigmoidLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits
from coulomb.models import Encoder


class SigLIP(ProjectionMethod):
    """The sigmoid loss (Zhai et al., 2023) on two views of an image, where the paper has an image and its text.

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = Sigmoid(z0, z1)          Σ_j −log σ(±(scale·cos_ij + bias)), mean over the N images i

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        embedding_dim: output width of the head (default: 128).
        head_layers: linear layers in the head (default: 2).
        head_hidden_dim: width between them; None is the feature width.
        scale: initial scale, 1/τ; 10 in the paper.
        bias: initial bias; −10 in the paper.
        learnable: learn both, as in the paper.
        seed: seed of the head's initial weights.
    """

    traits = Traits(floor="zero")
    local_mean = False
    most_views = 2

    def __init__(
        self,
        encoder: Encoder,
        *,
        scale: float = 10.0,
        bias: float = -10.0,
        learnable: bool = True,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, **head)
        self.criterion = SigmoidLoss(scale, bias, learnable)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all pairs have the same score, at its best, −ln(N − 1): ln N + (N − 1) ln(N/(N − 1))."""
        return math.log(batch) + (batch - 1) * math.log(batch / max(batch - 1, 1))

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: every pair is on its side of the threshold, at a scale without bound."""
        return 0.0
