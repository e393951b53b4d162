import math

import pytest
import torch

from coulomb.losses import NTXentLoss, SupConLoss
from coulomb.methods import METHODS, SimCLR, SupCon
from coulomb.models import build_encoder


@pytest.fixture
def encoder():
    return build_encoder("convnet", channels=1, image_size=8, width=4, stages=2)


def views(count=2, batch=6):
    draw = torch.Generator().manual_seed(0)
    return [torch.rand(batch, 1, 8, 8, generator=draw) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3])
def test_simclr_is_ntxent_of_the_head(encoder, count):
    method = SimCLR(encoder, temperature=0.3, embedding_dim=5).eval()
    seen = views(count)
    embeddings = torch.stack([method.head(encoder(view)) for view in seen], dim=1)
    torch.testing.assert_close(method(seen), NTXentLoss(temperature=0.3)(embeddings))


def test_supcon_uses_labels(encoder):
    method = SupCon(encoder, temperature=0.3, embedding_dim=5).eval()
    seen, labels = views(), torch.tensor([0, 0, 1, 1, -1, 2])
    embeddings = torch.stack([method.head(encoder(view)) for view in seen], dim=1)
    torch.testing.assert_close(method(seen, labels), SupConLoss(temperature=0.3)(embeddings, labels))
    assert method(seen, labels) != method(seen, torch.zeros(6, dtype=torch.long))


@pytest.mark.parametrize("name", METHODS)
def test_equal_images_give_the_value_of_no_signal(encoder, name):
    method = METHODS[name](encoder).eval()
    same = [torch.full((4, 1, 8, 8), 0.5)] * 2
    loss = method(same, torch.arange(4))
    assert math.isclose(float(loss.detach()), method.no_signal(4, 2), rel_tol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_the_seed_sets_the_head(encoder, name):
    first, again, other = (METHODS[name](encoder, seed=seed).head.state_dict() for seed in (1, 1, 2))
    weight = next(key for key, value in first.items() if value.ndim == 2)
    assert torch.equal(first[weight], again[weight])
    assert not torch.equal(first[weight], other[weight])


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_learns(encoder, name):
    method = METHODS[name](encoder)
    method(views(), torch.tensor([0, 0, 1, 1, 2, 2])).backward()
    without = [key for key, parameter in method.named_parameters() if parameter.grad is None]
    assert without == []
