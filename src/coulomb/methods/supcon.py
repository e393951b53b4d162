"""SupCon: SimCLR's batch, with every image of the anchor's class as a positive."""

from typing import ClassVar

from torch import Tensor

from coulomb.losses import SupConLoss
from coulomb.methods.interface import OneColumn, Traits, equal_embeddings_loss
from coulomb.models import Tower, ViewRows


class SupCon(OneColumn):
    """Supervised contrastive learning (Khosla et al., 2020), stage one: the representation.

        z = head(encoder(view))         head: Linear-ReLU-Linear without batch norm, as in the authors' code
        loss = SupCon(z, labels)        mean over positives outside the logarithm

    Labels may be partly unknown (−1); the only positives of such an image are its own other views.
    Stage two follows in the same command and is saved with the run: a linear classifier on the frozen encoder, multinomial
    logistic regression on the features of the training images without augmentation (the authors: SGD with augmentation for
    100 epochs).

    Args:
        tower: encoder and head; the head has 2 layers without batch norm and ends in 128, as in the authors' code.
        temperature: τ; .1 for CIFAR in the paper, .07 in the authors' code.
    """

    default_head: ClassVar = {"batch_norm": False}
    traits = Traits(negatives=True, floor="classes")
    local_mean = False

    needs_labels = True
    two_stages = True
    least_views = 1

    def __init__(self, tower: Tower, *, temperature: float = 0.1):
        super().__init__(tower)
        self.criterion = SupConLoss(temperature=temperature)

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar: labels [N] (−1: unknown)."""
        loss: Tensor = self.criterion(views.by_instance(self.embed(views)), labels)
        return loss

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(V·N − 1)."""
        return equal_embeddings_loss(batch, views)
