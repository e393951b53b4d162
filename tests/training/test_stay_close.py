import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from coulomb.models import build_encoder
from coulomb.training.stay_close import StayClose, recording


def encoder_of(seed=0):
    return build_encoder("convnet", channels=3, image_size=8, width=4, stages=2, seed=seed)


views = torch.rand(6, 3, 8, 8)


def test_the_distance_is_one_minus_the_mean_cosine_with_the_start_in_eval_mode():
    encoder, start = encoder_of(0), encoder_of(1)
    state = copy.deepcopy(start.state_dict())
    penalty = StayClose(start, 0.5)
    with recording(encoder) as seen:
        first, second = encoder(views[:2]), encoder(views[2:])
    distance = penalty.distance(seen)
    features = normalize(torch.cat([first, second]).double(), dim=1)
    published = normalize(start.eval()(views).double(), dim=1)
    assert math.isclose(
        float(distance.detach()), float(1 - (features.detach() * published.detach()).sum(1).mean()), rel_tol=1e-5
    )
    distance.backward()
    assert all(p.grad is not None for p in encoder.parameters())
    assert all(p.grad is None and not p.requires_grad for p in start.parameters())
    assert all(torch.equal(value, state[name]) for name, value in start.state_dict().items())


def test_the_start_has_distance_zero_and_an_opposite_network_two():
    encoder = encoder_of().eval()
    for sign, expected in ((1, 0.0), (-1, 2.0)):
        penalty = StayClose(copy.deepcopy(encoder), 1.0)
        with recording(nn.Sequential(encoder)) as seen:
            pass
        seen.append((views, sign * encoder(views)))
        assert abs(float(penalty.distance(seen).detach()) - expected) < 1e-5


def test_views_without_gradient_do_not_count_and_recording_ends():
    encoder = encoder_of()
    penalty = StayClose(copy.deepcopy(encoder), 1.0)
    with recording(encoder) as seen, torch.no_grad():
        encoder(views)
    assert penalty.distance(seen) is None
    encoder(views)
    assert not seen and not encoder._forward_hooks


def test_a_zero_feature_has_finite_gradients():
    penalty = StayClose(encoder_of(), 1.0)
    features = torch.zeros(6, encoder_of().feature_dim, requires_grad=True)
    penalty.distance([(views, features)]).backward()
    assert bool(features.grad.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_distance_is_in_float32_under_autocast(dtype):
    encoder = encoder_of()
    penalty = StayClose(copy.deepcopy(encoder), 1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        with recording(encoder) as seen:
            encoder(views)
        distance = penalty.distance(seen)
    assert distance.dtype is torch.float32 and 0 <= float(distance.detach()) < 1
