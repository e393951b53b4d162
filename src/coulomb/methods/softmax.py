"""Softmax: the supervised baseline, an encoder and a linear classifier trained together."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from coulomb.ground.randomness import seeded_initialization
from coulomb.losses import BalancedSoftmaxLoss, SoftmaxLoss
from coulomb.methods.interface import Method, Traits, labeled_rows
from coulomb.models import Tower, ViewRows
from coulomb.models.classifier import Classifier


class Softmax(Method):
    """Cross-entropy of a linear classifier on the features; all views of an image have its label.

        logits = W·encoder(view) + b
        loss = cross-entropy(logits, labels)         mean over all labeled views

    Images without a label are not used. The classifier is saved with the run. It is also the head of the tower, whose
    outputs are monitored during training.

    Args:
        tower: encoder; the classifier becomes its head.
        class_counts: training images of each class, [C].
        label_smoothing: ε, 0 for none.
        seed: seed of the classifier's initial weights.
    """

    default_head: ClassVar = None
    traits = Traits(classifier=True, floor="zero")
    local_mean = True

    needs_labels = True
    labeled_only = True
    criterion: Any

    def __init__(self, tower: Tower, *, class_counts: Tensor, label_smoothing: float = 0.0, seed: int = 0):
        super().__init__()
        self.tower = tower
        with seeded_initialization(seed, "classifier"):
            tower.head = nn.Linear(tower.feature_dim, len(class_counts))
        self.criterion: SoftmaxLoss | BalancedSoftmaxLoss = SoftmaxLoss(label_smoothing)
        self.constant_loss = entropy(class_counts, label_smoothing)
        self.least_loss = entropy(torch.eye(len(class_counts))[0], label_smoothing)

    @property
    def linear(self) -> Any:
        """The classifier, a linear layer."""
        return self.tower.head

    def forward(self, views: ViewRows, labels: Tensor, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar: labels [N] (−1: left out)."""
        rows, labels = labeled_rows(self.tower.encoder(views[self.tower.column]), labels)
        if not len(rows):
            return self.linear(rows).sum()  # 0, with a gradient that all processes can reduce
        return self.criterion(rows, labels, self.linear.weight, self.linear.bias)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss of the best constant prediction: the entropy of the class frequencies, at most ln C."""
        return self.constant_loss

    def floor(self, batch: int, views: int) -> float:
        """Returns the loss of a certain and correct classifier: the entropy of a smoothed label, 0 without smoothing."""
        return self.least_loss

    def classifier(self) -> Classifier:
        """Returns the current classifier."""
        return Classifier(self.linear.weight, self.linear.bias, how="linear, cross-entropy, trained with the encoder")


def entropy(class_counts: Tensor, label_smoothing: float = 0.0) -> float:
    """Returns the cross-entropy of the best constant prediction for the class frequencies, smoothed like the targets."""
    share = class_counts.double() / class_counts.sum().clamp_min(1)
    share = (1 - label_smoothing) * share + label_smoothing / len(share)
    return float(torch.special.entr(share).sum())
