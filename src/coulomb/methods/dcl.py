"""DCL: SimCLR without the positive in the denominator."""

import math

from coulomb.losses import DecoupledLoss
from coulomb.methods.interface import OneColumn, Traits
from coulomb.models import Tower


class DCL(OneColumn):
    """Decoupled contrastive learning (Yeh et al., 2022).

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = Decoupled(z0, z1)        −s⁺ + LSE over the 2N − 2 views of other images; no lower bound of 0

    Args:
        tower: encoder and head; the head has 2 layers and ends in 128, as in the paper.
        temperature: τ; .1 in the paper.
        weighted: DCLW, which pulls distant positives more; see `DecoupledLoss`.
        sigma: σ of its weights; .5 in the paper.
    """

    traits = Traits(negatives=True, floor="decoupled")
    local_mean = False
    most_views = 2

    def __init__(
        self,
        tower: Tower,
        *,
        temperature: float = 0.1,
        weighted: bool = False,
        sigma: float = 0.5,
    ):
        super().__init__(tower)
        self.temperature = temperature
        self.criterion = DecoupledLoss(temperature, weighted, sigma)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(2N − 2)."""
        return math.log(max(2 * batch - 2, 1))

    def floor(self, batch: int, views: int) -> float | None:
        """Returns the smallest loss, ln(2N − 2) − (1 + 1/(N − 1))/τ, reached by `SimCLR.floor`'s simplex; None if weighted."""
        if self.criterion.weighted or batch < 2:
            return None
        return self.no_signal(batch, views) - (1 + 1 / (batch - 1)) / self.temperature
