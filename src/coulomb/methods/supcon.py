"""SupCon: SimCLR's batch, with every image of the anchor's class as a positive."""

from typing import Unpack

import torch
from torch import Tensor

from coulomb.losses import SupConLoss
from coulomb.methods.interface import HeadOptions, ProjectionMethod, Traits, equal_embeddings_loss
from coulomb.models import Encoder


class SupCon(ProjectionMethod):
    """Supervised contrastive learning (Khosla et al., 2020), stage one: the representation.

        z = head(encoder(view))         head: Linear-ReLU-Linear without batch norm, as in the authors' code
        loss = SupCon(z, labels)        mean over positives outside the logarithm

    Labels may be partly unknown (−1); the only positives of such an image are its own other views.
    Stage two follows in the same command and is saved with the run: a linear classifier on the frozen encoder, multinomial
    logistic regression on the features of the training images without augmentation (the authors: SGD with augmentation for
    100 epochs).

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ; .1 for CIFAR in the paper, .07 in the authors' code.
        embedding_dim: output width of the head (default and paper: 128).
        head_layers: linear layers in the head (default and paper: 2).
        head_hidden_dim: width between them; None is the feature width, as in the paper.
        seed: seed of the head's initial weights.
    """

    traits = Traits(negatives=True, floor="classes")
    local_mean = False

    needs_labels = True
    two_stages = True
    least_views = 1

    def __init__(self, encoder: Encoder, *, temperature: float = 0.1, seed: int = 0, **head: Unpack[HeadOptions]):
        super().__init__(encoder, seed=seed, batch_norm=False, **head)
        self.criterion = SupConLoss(temperature=temperature)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar: V views [B, C, H, W] and labels [B] (−1: unknown)."""
        loss: Tensor = self.criterion(torch.stack(self.embed(views).chunk(len(views)), dim=1), labels)
        return loss

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(V·N − 1)."""
        return equal_embeddings_loss(batch, views)
