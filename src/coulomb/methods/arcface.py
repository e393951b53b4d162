"""ArcFace: classes are directions, and the correct one must be closer than all others by an angle."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from coulomb.ground.randomness import generator
from coulomb.losses import ArcFaceLoss
from coulomb.methods.interface import OneColumn, Traits, labeled_rows
from coulomb.models import Tower, ViewRows
from coulomb.models.classifier import Classifier


class ArcFace(OneColumn):
    """Embeddings against learnable class centers with an additive angular margin (Deng et al., 2019).

        z = head(encoder(view))         head: one linear layer
        loss = ArcFace(z, labels)       cross-entropy of scale·cos θ, with the margin added to the angle of the own class

    Images without a label are not used. As in the other methods, the encoder that is evaluated and exported ends before the
    head; head and centers are saved with the run as its classifier.

    Args:
        tower: encoder and head; the head has one layer of 512 (paper: between batch norms), without batch norm.
        num_classes: C.
        scale: s, 64 as in the paper.
        margin: m in radians, .5 as in the paper.
        easy_margin: apply the margin only where cos θ > 0, which makes the beginning easier.
        seed: seed of the initial weights.
    """

    default_head: ClassVar = {"embedding_dim": 512, "head_layers": 1, "batch_norm": False}
    traits = Traits(floor="zero", ceiling=False)
    local_mean = True

    needs_labels = True
    least_views = 1
    labeled_only = True

    def __init__(
        self,
        tower: Tower,
        *,
        num_classes: int,
        scale: float = 64.0,
        margin: float = 0.5,
        easy_margin: bool = False,
        seed: int = 0,
    ):
        super().__init__(tower)
        self.criterion = ArcFaceLoss(
            num_classes,
            tower.embedding_dim,
            scale,
            margin,
            easy_margin=easy_margin,
            generator=generator(seed, "centres"),
        )

    def forward(self, views: ViewRows, labels: Tensor, train_row: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Returns the loss of a batch, a scalar: labels [N] (−1: left out)."""
        rows, labels = labeled_rows(self.embed(views), labels)
        if not len(rows):
            return rows.sum() + 0 * self.criterion.centers.sum()
        return self.criterion(rows, labels)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the smallest loss of equal embeddings and equally frequent classes, ln(1 + (C − 1)·e^{s(1 − cos m)})."""
        classes = len(self.criterion.centers)
        if classes == 1:
            return 0.0
        gap = 0.0 if self.criterion.easy_margin else self.criterion.scale * (1 - math.cos(self.criterion.margin))
        return float(torch.tensor(gap + math.log(classes - 1), dtype=torch.float64).exp().log1p())

    def classifier(self) -> Classifier:
        """Returns head and centers as a classifier: scale·cos θ, without the margin."""
        return Classifier(
            self.criterion.centers,
            head=self.tower.head,
            head_options=self.tower.head_options,
            cosine=True,
            scale=self.criterion.scale,
            how="cosine to class centers, ArcFace, trained with the encoder",
        )
