"""ArcFace: classes are directions, and the correct one must be closer than all others by an angle."""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from coulomb.ground.randomness import generator
from coulomb.losses import ArcFaceLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits, labeled_rows
from coulomb.models import Encoder
from coulomb.models.classifier import Classifier


class ArcFace(ProjectionMethod):
    """Embeddings against learnable class centers with an additive angular margin (Deng et al., 2019).

        z = head(encoder(view))         head: one linear layer
        loss = ArcFace(z, labels)       cross-entropy of scale·cos θ, with the margin added to the angle of the own class

    Images without a label are not used. As in the other methods, the encoder that is evaluated and exported ends before the
    head; head and centers are saved with the run as its classifier.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        num_classes: C.
        embedding_dim: output width of the head (default and paper: 512).
        head_layers, head_hidden_dim: as in SimCLR, without batch norm (default: 1; paper: 1, between batch norms).
        scale: s, 64 as in the paper.
        margin: m in radians, .5 as in the paper.
        easy_margin: apply the margin only where cos θ > 0, which makes the beginning easier.
        seed: seed of the initial weights.
    """

    traits = Traits(floor="zero", ceiling=False)
    local_mean = True

    needs_labels = True
    labeled_only = True
    default_head: ClassVar[HeadOptions] = {"embedding_dim": 512, "head_layers": 1}

    def __init__(
        self,
        encoder: Encoder,
        *,
        num_classes: int,
        scale: float = 64.0,
        margin: float = 0.5,
        easy_margin: bool = False,
        seed: int = 0,
        **head: Unpack[HeadOptions],
    ):
        super().__init__(encoder, seed=seed, batch_norm=False, **head)
        self.criterion = ArcFaceLoss(
            num_classes,
            self.embedding_dim,
            scale,
            margin,
            easy_margin=easy_margin,
            generator=generator(seed, "centres"),
        )

    def forward(self, views: list[Tensor], labels: Tensor, index: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Returns the loss of a batch, a scalar: V views [B, C, H, W] and labels [B] (−1: left out)."""
        rows, labels = labeled_rows(self.head(self.encoder(torch.cat(views))), labels, len(views))
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
            head=self.head,
            head_options=self.head_options,
            cosine=True,
            scale=self.criterion.scale,
            how="cosine to class centers, ArcFace, trained with the encoder",
        )
