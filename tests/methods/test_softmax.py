import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from coulomb.ground.errors import CoulombWarning
from coulomb.methods.balanced_softmax import BalancedSoftmax
from coulomb.methods.softmax import Softmax, entropy
from coulomb.models import ViewRows
from method_cases import built, encoder, views

COUNTS = torch.tensor([30, 10, 10])


def test_loss_is_cross_entropy_of_the_labeled_views():
    method, labels = built(Softmax, encoder(), class_counts=COUNTS).eval(), torch.tensor([0, 2, -1, 1, 0, -1])
    kept = labels >= 0
    logits = torch.cat([method.tower(view[kept]) for view in views()])
    torch.testing.assert_close(method(ViewRows.of(views()), labels), cross_entropy(logits, labels[kept].repeat(2)))


def test_no_signal_is_the_best_constant():
    for smoothing in (0.0, 0.1):
        method = built(Softmax, encoder(), class_counts=COUNTS, label_smoothing=smoothing)
        share = COUNTS / COUNTS.sum()
        best = (1 - smoothing) * share + smoothing / 3
        labels = torch.tensor([0] * 3 + [1, 2])
        constant = cross_entropy(best.log().expand(5, 3), labels, label_smoothing=smoothing)
        assert math.isclose(method.no_signal(5, 2), float(constant), rel_tol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_floor_is_the_loss_of_the_best_logits(smoothing):
    method = built(Softmax, encoder(), class_counts=COUNTS, label_smoothing=smoothing)
    target = torch.full((1, 3), smoothing / 3, dtype=torch.float64)
    target[0, 1] += 1 - smoothing
    best = cross_entropy(target.clamp_min(1e-300).log(), torch.tensor([1]), label_smoothing=smoothing)
    assert math.isclose(method.floor(5, 2), float(best), rel_tol=1e-6, abs_tol=1e-9)


def test_the_classifier_equals_the_head():
    method = built(Softmax, encoder(), class_counts=COUNTS).eval()
    features = method.tower.encoder(views()[0])
    torch.testing.assert_close(method.classifier()(features), method.tower.head(features))
    assert not any(p.requires_grad for p in method.classifier().parameters())


def test_entropy_of_equal_and_of_certain_classes():
    assert math.isclose(entropy(torch.tensor([5, 5, 5, 5])), math.log(4))
    assert entropy(torch.tensor([7, 0])) == 0.0
    assert math.isclose(entropy(torch.tensor([7, 0]), label_smoothing=0.999999), math.log(2), rel_tol=1e-6)


def test_log_frequencies_in_training_and_not_in_the_classifier():
    counts = torch.tensor([90.0, 9.0, 1.0])
    method = built(BalancedSoftmax, encoder(), class_counts=counts).eval()
    features = torch.cat([method.tower.encoder(view) for view in views()])
    logits = method.tower.head(features)
    labels = torch.tensor([0, 2, 1, 1, 0, 2])
    torch.testing.assert_close(
        method(ViewRows.of(views()), labels), cross_entropy(logits + counts.log(), labels.repeat(2))
    )
    torch.testing.assert_close(method.classifier()(features), logits)


def test_a_class_without_images_is_counted_as_one():
    with pytest.warns(CoulombWarning, match="1 of 3 classes have no training image"):
        method = built(BalancedSoftmax, encoder(), class_counts=torch.tensor([90, 9, 0]))
    assert method.criterion.class_counts.tolist() == [90, 9, 1]
