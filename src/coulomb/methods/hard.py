"""Hard negatives: SimCLR's batch, with larger weights for negatives that are similar to the anchor."""

from coulomb.losses import HardNegativeLoss
from coulomb.methods.interface import OneColumn, Traits, equal_embeddings_loss
from coulomb.models import Tower


class Hard(OneColumn):
    """Contrastive learning with hard negative samples (HCL; Robinson et al., 2021).

        z = head(encoder(view))                 both views in one forward pass, which share the batch statistics
        loss = HardNegative(z0, z1; β, τ⁺)      negatives weighted by e^{β·s}, and debiased by τ⁺

    Args:
        tower: encoder and head; the head has 2 layers and ends in 128, as in the paper, whose hidden layer has 512.
        temperature: τ; .5 in the paper.
        beta: β ≥ 0, the concentration on similar negatives; 1 in the authors' code. 0 is `Debiased`.
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
        beta: float = 1.0,
        tau_plus: float = 0.1,
    ):
        super().__init__(tower)
        self.criterion = HardNegativeLoss(temperature, beta, tau_plus)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(2N − 1)."""
        return equal_embeddings_loss(batch, views)
