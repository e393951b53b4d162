"""Balanced softmax: the classifier for long tails, whose logits know how frequent each class is."""

from torch import Tensor

from coulomb.losses import BalancedSoftmaxLoss
from coulomb.methods.labelled import present
from coulomb.methods.softmax import Softmax
from coulomb.models import Encoder
from coulomb.models.classifier import Classifier


class BalancedSoftmax(Softmax):
    """Softmax with log π_c added to the logits in training, π the class frequencies (Ren et al., 2020).

        loss = cross-entropy(W·encoder(view) + b + log π, labels)

    Predictions are the largest of the plain logits, as if all classes were equally frequent.

    Args:
        encoder, label_smoothing, seed: as in `Softmax`.
        class_counts: training images of each class as they are drawn, [C]; a class without any counts as one.
    """

    def __init__(self, encoder: Encoder, *, class_counts: Tensor, label_smoothing: float = 0.0, seed: int = 0):
        super().__init__(encoder, class_counts=class_counts, label_smoothing=label_smoothing, seed=seed)
        self.criterion = BalancedSoftmaxLoss(present(class_counts), label_smoothing)

    def classifier(self) -> Classifier:
        """The classifier as it is now: plain logits, without log π."""
        return Classifier(self.head.weight, self.head.bias, how="linear, balanced softmax, trained with the encoder")
