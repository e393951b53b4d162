"""SigLIP on two views: every pair of views is classified on its own, as of the same image or not."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from coulomb.losses import SigmoidLoss
from coulomb.methods.interface import OneColumn, Traits
from coulomb.methods.several import SeveralColumns
from coulomb.models import Tower, Towers


class SigLIP(OneColumn):
    """The sigmoid loss (Zhai et al., 2023) on two views of an image, where the paper has an image and its text.

        z = head(encoder(view))         both views in one forward pass, which share the batch statistics
        loss = Sigmoid(z0, z1)          Σ_j −log σ(±(scale·cos_ij + bias)), mean over the N images i

    Args:
        tower: encoder and head; the head has 2 layers and ends in 128.
        scale: initial scale, 1/τ; 10 in the paper.
        bias: initial bias; −10 in the paper.
        learnable: learn both, as in the paper.
    """

    traits = Traits(floor="zero")
    local_mean = False
    most_views = 2

    def __init__(
        self,
        tower: Tower,
        *,
        scale: float = 10.0,
        bias: float = -10.0,
        learnable: bool = True,
    ):
        super().__init__(tower)
        self.criterion = SigmoidLoss(scale, bias, learnable)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all pairs have the same score, at its best, −ln(N − 1): ln N + (N − 1) ln(N/(N − 1))."""
        return math.log(batch) + (batch - 1) * math.log(batch / max(batch - 1, 1))

    def floor(self, batch: int, views: int) -> float:
        """Returns 0: every pair is on its side of the threshold, at a scale without bound."""
        return 0.0


class PairSigLIP(SeveralColumns):
    """The sigmoid loss of SigLIP (Zhai et al., 2023): every picture with every caption of the batch is classified on its own.

        loss = Σ_j −log σ(±(scale·cos_ij + bias)), mean over the N rows i

    Pairs of rows that share a cell are left out of the negatives.

    Args:
        towers, cell_ids, negatives: see `coulomb.methods.several.SeveralColumns`; columns of negatives are refused.
        scale: initial scale, 1/τ; 10 in the paper.
        bias: initial bias; −10 in the paper.
    """

    traits = Traits(floor="zero")

    def __init__(
        self,
        towers: Towers,
        cell_ids: Tensor | None,
        negatives: tuple[str, ...] = (),
        *,
        scale: float = 10.0,
        bias: float = -10.0,
    ) -> None:
        self.require_options({"scale": scale}, negatives)
        super().__init__(towers, cell_ids)
        self.criterion = SigmoidLoss(scale=scale, bias=bias, same_id="left_out")

    @classmethod
    def require_options(cls, options: Mapping[str, Any], negatives: tuple[str, ...] = ()) -> None:
        """Raises ValueError for an option that is refused whatever the towers are, and for columns of negatives."""
        if negatives:
            raise ValueError(f"columns of negatives ({', '.join(negatives)}): not with siglip; use method='clip'")
        if not options["scale"] > 0:
            raise ValueError(f"scale={options['scale']}: must be above 0")

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all pairs have the same score, at its best, −ln(N − 1): ln N + (N − 1) ln(N/(N − 1))."""
        return math.log(batch) + (batch - 1) * math.log(batch / max(batch - 1, 1))

    def figures(self) -> dict[str, float]:
        """Returns the temperature 1/scale and the bias."""
        return {
            "temperature": math.exp(-float(self.criterion.log_scale.detach())),
            "bias": float(self.criterion.learned_bias.detach()),
        }
