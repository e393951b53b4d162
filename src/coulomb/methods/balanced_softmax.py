"""Balanced softmax: a classifier for long-tailed data, whose logits include the log class frequencies in training."""

from torch import Tensor

from coulomb.losses import BalancedSoftmaxLoss
from coulomb.methods.interface import positive_counts
from coulomb.methods.softmax import Softmax
from coulomb.models import Tower
from coulomb.models.classifier import Classifier


class BalancedSoftmax(Softmax):
    """Softmax with log π_c added to the logits in training, π the class frequencies (Ren et al., 2020).

        loss = cross-entropy(W·encoder(view) + b + log π, labels)

    The prediction is the largest logit without log π, as if all classes were equally frequent.

    Args:
        tower, label_smoothing, seed: as in `Softmax`.
        class_counts: training images of each class as the sampler draws them, [C]; a class without images counts as one.
    """

    def __init__(self, tower: Tower, *, class_counts: Tensor, label_smoothing: float = 0.0, seed: int = 0):
        super().__init__(tower, class_counts=class_counts, label_smoothing=label_smoothing, seed=seed)
        self.criterion = BalancedSoftmaxLoss(positive_counts(class_counts), label_smoothing)

    def classifier(self) -> Classifier:
        """Returns the current classifier, without log π."""
        return Classifier(
            self.linear.weight, self.linear.bias, how="linear, balanced softmax, trained with the encoder"
        )
