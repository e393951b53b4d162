"""Debiased contrast: SimCLR's batch, corrected for the expected share of false negatives."""

from coulomb.losses import DebiasedLoss
from coulomb.methods.interface import OneColumn, Traits, equal_embeddings_loss
from coulomb.models import Tower


class Debiased(OneColumn):
    """Debiased contrastive learning (Chuang et al., 2020).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = Debiased(z0, z1)         a share τ⁺ of the negatives is assumed to have the anchor's class

    Args:
        tower: encoder and head; the head has 2 layers and ends in 128, as in the paper, whose hidden layer has 512.
        temperature: τ; .5 in the paper. Below about .3 the correction exceeds the negatives; see `DebiasedLoss`.
        tau_plus: τ⁺, the probability that a random image has the anchor's class; .1 in the paper (10 classes).
    """

    traits = Traits(negatives=True)
    local_mean = False

    most_views = 2

    def __init__(
        self,
        tower: Tower,
        *,
        temperature: float = 0.5,
        tau_plus: float = 0.1,
    ):
        super().__init__(tower)
        self.criterion = DebiasedLoss(temperature, tau_plus)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(2N − 1)."""
        return equal_embeddings_loss(batch, views)
