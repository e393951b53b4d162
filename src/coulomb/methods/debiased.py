"""Debiased contrast: SimCLR's batch, corrected for the expected share of false negatives."""

from typing import Unpack

from coulomb.losses import DebiasedLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits, equal_embeddings_loss
from coulomb.models import Encoder


class Debiased(ProjectionMethod):
    """Debiased contrastive learning (Chuang et al., 2020).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = Debiased(z0, z1)         a share τ⁺ of the negatives is assumed to have the anchor's class

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ; .5 in the paper. Below about .3 the correction exceeds the negatives; see `DebiasedLoss`.
        embedding_dim: output width of the head (default and paper: 128).
        head_layers: linear layers in the head (default and paper: 2).
        head_hidden_dim: width between them (paper: 512); None is the feature width.
        tau_plus: τ⁺, the probability that a random image has the anchor's class; .1 in the paper (10 classes).
        seed: seed of the head's initial weights.
    """

    traits = Traits(negatives=True)
    local_mean = False

    most_views = 2

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.5,
        tau_plus: float = 0.1,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, **head)
        self.criterion = DebiasedLoss(temperature, tau_plus)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(2N − 1)."""
        return equal_embeddings_loss(batch, views)
