"""Features that several processes compute together are those of one process."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from coulomb.evaluation import contestants
from coulomb.evaluation.contestants import Contestant
from coulomb.kinds.image.views import make_views
from coulomb.models import build_encoder
from coulomb.tables import image_samples, open_source
from coulomb.training.plan.plan import Part


@pytest.mark.parametrize("world", [1, 2, 3, 9])
@pytest.mark.parametrize("pixels", [False, True])
def test_shares_put_together_are_the_features_of_one_process(digit_tree, monkeypatch, world, pixels):
    monkeypatch.setattr(contestants, "BATCH", 8)
    images = image_samples(open_source(digit_tree), size=16, channels=1)
    part = Part(images, np.arange(3, 50), None)
    encoder = build_encoder("convnet", channels=1, image_size=16, width=4, seed=0)
    normalize = encoder.normalize if pixels else None
    contestant = Contestant(encoder, make_views("digits", size=16, channels=1), torch.device("cpu"), pixels=normalize)
    found = []
    for rank in range(world):
        team = SimpleNamespace(world=world, rank=rank, to_first=lambda work: [work()])
        found.append(contestant.shared_features(part, team))
    features, indices = contestant.features(part)
    assert np.concatenate([each for _, each in found]).tolist() == indices.tolist() == list(range(3, 50))
    together = torch.cat([each for each, _ in found if len(each)])
    torch.testing.assert_close(together, features, rtol=0, atol=1e-6)
