import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from coulomb.methods.softmax import Softmax
from method_cases import encoder, views

COUNTS = torch.tensor([30, 10, 10])


def test_loss_is_cross_entropy_of_the_labelled_views():
    method, labels = Softmax(encoder(), class_counts=COUNTS).eval(), torch.tensor([0, 2, -1, 1, 0, -1])
    kept = labels >= 0
    logits = torch.cat([method.head(method.encoder(view[kept])) for view in views()])
    torch.testing.assert_close(method(views(), labels), cross_entropy(logits, labels[kept].repeat(2)))


def test_no_signal_is_the_best_constant():
    for smoothing in (0.0, 0.1):
        method = Softmax(encoder(), class_counts=COUNTS, label_smoothing=smoothing)
        share = COUNTS / COUNTS.sum()
        best = (1 - smoothing) * share + smoothing / 3
        labels = torch.tensor([0] * 3 + [1, 2])
        constant = cross_entropy(best.log().expand(5, 3), labels, label_smoothing=smoothing)
        assert math.isclose(method.no_signal(5, 2), float(constant), rel_tol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_floor_is_the_loss_of_the_best_logits(smoothing):
    method = Softmax(encoder(), class_counts=COUNTS, label_smoothing=smoothing)
    target = torch.full((1, 3), smoothing / 3, dtype=torch.float64)
    target[0, 1] += 1 - smoothing
    best = cross_entropy(target.clamp_min(1e-300).log(), torch.tensor([1]), label_smoothing=smoothing)
    assert math.isclose(method.floor(5, 2), float(best), rel_tol=1e-6, abs_tol=1e-9)


def test_the_classifier_says_what_the_head_says():
    method = Softmax(encoder(), class_counts=COUNTS).eval()
    features = method.encoder(views()[0])
    torch.testing.assert_close(method.classifier()(features), method.head(features))
    assert not any(p.requires_grad for p in method.classifier().parameters())
