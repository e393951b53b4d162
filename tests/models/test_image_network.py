import json

import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, wrap_encoder

NAMES = ["convnet", "resnet10", "resnet18", "resnet34", "resnet50", "vit"]
SMALL = {"vit": {"width": 24, "depth": 2, "heads": 2}}


def small(name, **more):
    return build_encoder(name, **{"width": 4, **SMALL.get(name, {}), **more})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("size", [8, 16, 28, 32, 64, 224])
def test_shapes(name, channels, size):
    encoder = small(name, channels=channels, image_size=size).eval()
    with torch.no_grad():
        features = encoder(torch.rand(2, channels, size, size))
    assert features.shape == (2, encoder.feature_dim)
    assert features.isfinite().all()
    assert (encoder.name, encoder.channels, encoder.image_size) == (name, channels, size)
    assert json.loads(json.dumps(encoder.config)) == encoder.config


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name):
    encoder = small(name, channels=3, image_size=16)
    with (
        torch.no_grad()
    ):  # with zero-initialized branches, the convolutions before them have no gradient in the first step
        for module in encoder.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.fill_(1.0)
    (encoder(torch.rand(4, 3, 16, 16)) * torch.rand(encoder.feature_dim)).sum().backward()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", NAMES)
def test_memory_format_does_not_change_the_result(name):
    encoder = small(name, channels=3, image_size=16).eval()
    images = torch.rand(3, 3, 16, 16)
    plain = encoder(images)
    last = encoder.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(plain, last, rtol=1e-4, atol=1e-5)


def test_seeded_weights_without_changing_the_global_generator():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = small("resnet10", channels=1, image_size=8, seed=3).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    again = small("resnet10", channels=1, image_size=8, seed=3).state_dict()
    other = small("resnet10", channels=1, image_size=8, seed=4).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["backbone.stem.0.weight"], other["backbone.stem.0.weight"])


def test_normalization_is_inside():
    plain = small("convnet", channels=3, image_size=8).eval()
    inside = small("convnet", channels=3, image_size=8, mean=[0.1, 0.5, 0.4], std=[0.2, 0.3, 0.25]).eval()
    images = torch.rand(2, 3, 8, 8)
    by_hand = (images - torch.tensor([0.1, 0.5, 0.4]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1)
    torch.testing.assert_close(inside(images), plain(by_hand))
    assert "normalize.mean" in inside.state_dict()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "resnet11"}, "resnet11.*use one of.*resnet18.*did you mean 'resnet18'"),
        ({"widht": 3}, "widht=3.*its options are width"),
        ({"width": 0}, "width=0"),
        ({"width": 2.5}, "width=2.5"),
        ({"mean": [0.5]}, "mean has 1 values for 3 channels"),
        ({"std": [0.2, 0.0, 0.2]}, "std=.*must be positive"),
        ({"std": [0.2, float("nan"), 0.2]}, "must be finite"),
        ({"image_size": 0}, "image_size=0"),
        ({"name": "vit", "width": 10, "heads": 3}, "width=10 must be a multiple of heads=3"),
    ],
)
def test_errors_for_bad_arguments_have_a_remedy(arguments, message):
    with pytest.raises(InputError, match=message):
        build_encoder(**{"name": "resnet10", "channels": 3, "image_size": 8, **arguments})


def test_errors_for_bad_images_have_a_remedy():
    encoder = small("convnet", channels=3, image_size=8)
    with pytest.raises(InputError, match=r"images.float\(\) / 255"):
        encoder(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(InputError, match=r"\[2, 1, 8, 8\].*\[B, 3, H, W\]"):
        encoder(torch.rand(2, 1, 8, 8))
    with pytest.raises(InputError, match="takes 8×8 images"):
        small("vit", channels=3, image_size=8)(torch.rand(2, 3, 9, 9))


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(3 * 64, 7)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.linear(self.dropout(self.norm(x)).flatten(1))


def test_wrapping_does_not_change_the_module():
    module = Flat()
    module.norm.eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    state = torch.get_rng_state()
    encoder = wrap_encoder(module, channels=3, image_size=8, mean=[0.5] * 3, std=[0.5] * 3)
    assert encoder.feature_dim == 7
    assert encoder.name == "Flat"
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert module.training and not module.norm.training
    assert encoder(torch.rand(5, 3, 8, 8)).shape == (5, 7)


def test_maps_are_averaged():
    module = nn.Conv2d(1, 6, 3)
    encoder = wrap_encoder(module, channels=1, image_size=8)
    images = torch.rand(4, 1, 8, 8)
    assert encoder.feature_dim == 6
    torch.testing.assert_close(encoder(images), module(images).mean(dim=(2, 3)))


class Returns(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


def test_dry_run_is_in_eval_mode():
    modes = []
    module = Returns(lambda x: modes.append(module.training) or x.mean((2, 3)))
    wrap_encoder(module, channels=3, image_size=8)
    assert modes == [False]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda x: (x.mean((2, 3)), x), "returned a tuple"),
        (lambda x: {"features": x}, "returned a dict"),
        (lambda x: x.flatten(2), r"shape \[2, 3, 64\]"),
        (lambda x: x.mean((2, 3))[:1], r"shape \[1, 3\] for 2 images"),
        (lambda x: x @ torch.zeros(5, 5), "failed on a batch of shape.*RuntimeError"),
    ],
)
def test_errors_for_modules_that_are_not_encoders(make, message):
    with pytest.raises(InputError, match=message):
        wrap_encoder(Returns(make), channels=3, image_size=8)
