"""CLIP: a picture finds its caption among all captions of the batch, and a caption its picture."""

import math

from torch import Tensor

from coulomb.losses import InfoNCELoss, LearnableTemperature
from coulomb.methods.interface import Traits
from coulomb.methods.several import SeveralColumns
from coulomb.models import Towers


class CLIP(SeveralColumns):
    """InfoNCE in both directions with a learned temperature (Radford et al., 2021).

        loss = ½ (InfoNCE(z₀ → z₁) + InfoNCE(z₁ → z₀))      mean over the N rows; over the columns, if there are more

    Pairs of rows that share a cell are left out of the negatives; ``same_cells="negative"`` is the paper's loss, in which
    they repel. Columns of negatives are further keys of the direction from the first to the second column.

    Args:
        towers, cell_ids, negatives: see `coulomb.methods.several.SeveralColumns`.
        temperature: the initial τ; .07 in the paper.
        learn_temperature: learn log(1/τ), as in the paper.
        least_temperature: lower limit of τ; .01 in the paper.
        same_cells: ``"left_out"`` or ``"negative"``.
    """

    traits = Traits(negatives=False)  # its temperature is learned: rules about a constant one do not apply

    def __init__(
        self,
        towers: Towers,
        cell_ids: Tensor | None,
        negatives: tuple[str, ...] = (),
        *,
        temperature: float = 0.07,
        learn_temperature: bool = True,
        least_temperature: float = 0.01,
        same_cells: str = "left_out",
    ) -> None:
        if same_cells not in ("left_out", "negative"):
            raise ValueError(f"same_cells={same_cells!r}: must be 'left_out' or 'negative'")
        super().__init__(towers, None if same_cells == "negative" else cell_ids, negatives)
        tau = LearnableTemperature(temperature, minimum=least_temperature) if learn_temperature else temperature
        self.criterion = InfoNCELoss(temperature=tau, symmetric=True, in_batch=bool(negatives))

    def no_signal(self, batch: int, views: int) -> float:
        """Returns ln N, the loss when all embeddings are equal and no rows of the batch share a cell."""
        return math.log(max(batch, 1))

    def figures(self) -> dict[str, float]:
        """Returns the temperature."""
        tau = self.criterion.temperature
        return {"temperature": float(tau().detach()) if isinstance(tau, LearnableTemperature) else float(tau)}
