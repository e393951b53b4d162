"""Hard negatives: SimCLR's batch, with larger weights for negatives that are similar to the anchor."""

from typing import Unpack

from coulomb.losses import HardNegativeLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits, equal_embeddings_loss
from coulomb.models import Encoder


class Hard(ProjectionMethod):
    """Contrastive learning with hard negative samples (HCL; Robinson et al., 2021).

        z = head(encoder(view))                 both views in one forward pass, which share the batch statistics
        loss = HardNegative(z0, z1; β, τ⁺)      negatives weighted by e^{β·s}, and debiased by τ⁺

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ; .5 in the paper.
        embedding_dim: output width of the head (default and paper: 128).
        head_layers: linear layers in the head (default and paper: 2).
        head_hidden_dim: width between them (paper: 512); None is the feature width.
        beta: β ≥ 0, the concentration on similar negatives; 1 in the authors' code. 0 is `Debiased`.
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
        beta: float = 1.0,
        tau_plus: float = 0.1,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, **head)
        self.criterion = HardNegativeLoss(temperature, beta, tau_plus)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(2N − 1)."""
        return equal_embeddings_loss(batch, views)
