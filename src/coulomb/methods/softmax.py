"""Softmax: the supervised baseline, an encoder and a linear classifier trained together."""

import torch
from torch import Tensor, nn

from coulomb.losses import BalancedSoftmaxLoss, SoftmaxLoss
from coulomb.methods.labelled import entropy, known_rows
from coulomb.models import Encoder
from coulomb.models.classifier import Classifier
from coulomb.randomness import seeded_initialisation


class Softmax(nn.Module):
    """Cross-entropy of a linear classifier on the features; all views of an image carry its label.

        logits = W·encoder(view) + b
        loss = cross-entropy(logits, labels)         mean over all labelled views

    Images without a label are not trained on. The classifier is kept with the run; the ``head`` whose outputs are
    watched during training is the classifier itself.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        class_counts: training images of each class, [C].
        label_smoothing: ε, 0 for none.
        seed: of the classifier's first weights.
    """

    needs_labels = True
    labelled_only = True

    def __init__(self, encoder: Encoder, *, class_counts: Tensor, label_smoothing: float = 0.0, seed: int = 0):
        super().__init__()
        self.encoder = encoder
        with seeded_initialisation(seed, "classifier"):
            self.head = nn.Linear(encoder.feature_dim, len(class_counts))
        self.criterion: SoftmaxLoss | BalancedSoftmaxLoss = SoftmaxLoss(label_smoothing)
        self.constant = entropy(class_counts, label_smoothing)
        self.certain = entropy(torch.eye(len(class_counts))[0], label_smoothing)

    def forward(self, views: list[Tensor], labels: Tensor, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each and labels [B] (−1: left out); returns a scalar."""
        rows, labels = known_rows(self.encoder(torch.cat(views)), labels, len(views))
        if not len(rows):
            return self.head(rows).sum()  # 0, with a gradient for every process to agree on
        return self.criterion(rows, labels, self.head.weight, self.head.bias)

    def no_signal(self, batch: int, views: int) -> float:
        """The loss of the best constant prediction: the entropy of the class frequencies, ln C when they are equal."""
        return self.constant

    def floor(self, batch: int, views: int) -> float:
        """The loss of a classifier that is sure and right: the entropy of a smoothed label, 0 without smoothing."""
        return self.certain

    def classifier(self) -> Classifier:
        """The classifier as it is now: plain logits."""
        return Classifier(self.head.weight, self.head.bias, how="linear, cross-entropy, trained with the encoder")
