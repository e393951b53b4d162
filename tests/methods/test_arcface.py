import math

import torch

from coulomb.losses import ArcFaceLoss
from coulomb.methods.arcface import ArcFace
from coulomb.models import ViewRows
from method_cases import built, encoder, views


def made(**options):
    return built(ArcFace, encoder(), num_classes=3, embedding_dim=5, **{"scale": 8.0} | options)


def test_loss_is_arcface_of_the_labeled_embeddings():
    method, labels = made().eval(), torch.tensor([0, 2, -1, 1, 0, -1])
    kept = labels >= 0
    rows = torch.cat([method.tower(view[kept]) for view in views()])
    loss = ArcFaceLoss(3, 5, 8.0, 0.5)
    loss.load_state_dict(method.criterion.state_dict())
    torch.testing.assert_close(method(ViewRows.of(views()), labels), loss(rows, labels[kept].repeat(2)))


def test_no_signal_is_the_smallest_loss_of_equal_embeddings():
    method = made()
    value = method.no_signal(6, 2)
    angles = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
    for angle in angles:  # one embedding for all, at the same angle from each center
        own = method.criterion.scale * method.criterion._with_margin(angle.cos())
        loss = torch.log1p(2 * (8 * angle.cos() - own).exp())
        assert float(loss) >= value - 1e-9
    assert math.isclose(value, math.log1p(2 * math.exp(8 * (1 - math.cos(0.5)))), rel_tol=1e-12)


def test_the_classifier_is_the_cosine_without_margin():
    method = made().eval()
    features = method.tower.encoder(views()[0])
    torch.testing.assert_close(method.classifier()(features), method.criterion.logits(method.tower.head(features)))
