"""ArcFace: classes are directions, and the right one must be nearer than all others by an angle."""

import math

import torch
from torch import Tensor, nn

from coulomb.losses import ArcFaceLoss
from coulomb.methods.labelled import known_rows
from coulomb.models import Encoder, projection_head
from coulomb.models.classifier import Classifier
from coulomb.randomness import generator


class ArcFace(nn.Module):
    """Embeddings against learnable class centres with an additive angular margin (Deng et al., 2019).

        z = head(encoder(view))         head: one linear layer
        loss = ArcFace(z, labels)       cross-entropy of scale·cos θ, the own angle enlarged by the margin

    Images without a label are not trained on. What is evaluated and exported as the encoder is before the head, as for
    the other methods; head and centres are kept with the run as its classifier.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        num_classes: C.
        embedding_dim: output width of the head; 512 in the paper.
        head_layers, head_hidden_dim: as in SimCLR, without batch norm (paper: one layer, between batch norms).
        scale: s, 64 as in the paper.
        margin: m in radians, .5 as in the paper.
        easy_margin: the margin only where cos θ > 0: easier to begin with.
        seed: of the first weights.
    """

    needs_labels = True
    labelled_only = True

    def __init__(
        self,
        encoder: Encoder,
        *,
        num_classes: int,
        embedding_dim: int = 512,
        head_layers: int = 1,
        head_hidden_dim: int | None = None,
        scale: float = 64.0,
        margin: float = 0.5,
        easy_margin: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head_options = {"layers": head_layers, "hidden_dim": head_hidden_dim, "batch_norm": False}
        self.head = projection_head(
            encoder.feature_dim,
            hidden_dim=head_hidden_dim,
            out_dim=embedding_dim,
            layers=head_layers,
            batch_norm=False,
            seed=seed,
        )
        self.criterion = ArcFaceLoss(
            num_classes, embedding_dim, scale, margin, easy_margin=easy_margin, generator=generator(seed, "centres")
        )

    def forward(self, views: list[Tensor], labels: Tensor, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each and labels [B] (−1: left out); returns a scalar."""
        rows, labels = known_rows(self.head(self.encoder(torch.cat(views))), labels, len(views))
        if not len(rows):
            return rows.sum() + 0 * self.criterion.centers.sum()
        return self.criterion(rows, labels)

    def no_signal(self, batch: int, views: int) -> float:
        """The least loss of embeddings that are all alike, equally frequent classes: ln(1 + (C−1)·e^{s(1−cos m)})."""
        classes = len(self.criterion.centers)
        if classes == 1:
            return 0.0
        gap = 0.0 if self.criterion.easy_margin else self.criterion.scale * (1 - math.cos(self.criterion.margin))
        return float(torch.tensor(gap + math.log(classes - 1), dtype=torch.float64).exp().log1p())

    def classifier(self) -> Classifier:
        """Head and centres as they are now: scale·cos θ, without the margin."""
        return Classifier(
            self.criterion.centers,
            head=self.head,
            head_options=self.head_options,
            cosine=True,
            scale=self.criterion.scale,
            how="cosine to class centres, ArcFace, trained with the encoder",
        )
