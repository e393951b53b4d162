import math

import pytest
import torch

from coulomb.losses import TripletLoss
from coulomb.methods.triplet import Triplet
from coulomb.models import ViewRows
from method_cases import built, encoder, views

LABELS = torch.tensor([0, 2, -1, 1, 0, -1])


@pytest.mark.parametrize("mining", ["all", "semihard", "hard"])
def test_loss_is_of_all_labeled_views(mining):
    method = built(Triplet, encoder(), embedding_dim=5, mining=mining, margin=0.7).eval()
    kept = LABELS >= 0
    rows = torch.cat([method.tower(view[kept]) for view in views()])
    expected = TripletLoss(0.7, mining, distance="euclidean")(rows, LABELS[kept].repeat(2))
    torch.testing.assert_close(method(ViewRows.of(views()), LABELS), expected)


@pytest.mark.parametrize(("options", "value"), [({}, 0.2), ({"soft": True}, math.log(2))])
def test_equal_images_give_the_value_of_no_signal(options, value):
    method = built(Triplet, encoder(), embedding_dim=5, mining="hard", **options).eval()
    loss = method(ViewRows.of([torch.full((4, 1, 8, 8), 0.5)] * 2), torch.tensor([0, 0, 1, 1]))
    assert math.isclose(float(loss.detach()), value, rel_tol=1e-4)
    assert math.isclose(method.no_signal(4, 2), value)
    assert built(Triplet, encoder(), mining="semihard").no_signal(4, 2) is None
    assert built(Triplet, encoder()).floor(4, 2) == 0 and built(Triplet, encoder(), soft=True).floor(4, 2) is None
