import pytest
import torch
from torch.nn.functional import cross_entropy

from coulomb.errors import CoulombWarning
from coulomb.methods.balanced_softmax import BalancedSoftmax
from method_cases import encoder, views

LABELS = torch.tensor([0, 2, 1, 1, 0, 2])


def test_log_frequencies_in_training_and_not_in_the_classifier():
    counts = torch.tensor([90.0, 9.0, 1.0])
    method = BalancedSoftmax(encoder(), class_counts=counts).eval()
    features = torch.cat([method.encoder(view) for view in views()])
    logits = method.head(features)
    torch.testing.assert_close(method(views(), LABELS), cross_entropy(logits + counts.log(), LABELS.repeat(2)))
    torch.testing.assert_close(method.classifier()(features), logits)


def test_a_class_without_images_is_counted_as_one():
    with pytest.warns(CoulombWarning, match="1 of 3 classes have no training image"):
        method = BalancedSoftmax(encoder(), class_counts=torch.tensor([90, 9, 0]))
    assert method.criterion.class_counts.tolist() == [90, 9, 1]
