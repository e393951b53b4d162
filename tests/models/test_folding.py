"""Encoders without the batch norms that follow a convolution."""

import threading

import pytest
import torch
from torch import nn

from coulomb.models import build_encoder, wrap_encoder
from coulomb.models.folding import folded


def randomize_norms(encoder):
    """Gives each batch norm other statistics and scales than those of its initialization."""
    draw = torch.Generator().manual_seed(0)
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(generator=draw)
            module.running_var.uniform_(0.5, 2, generator=draw)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=draw)
            nn.init.normal_(module.bias, generator=draw)


@pytest.mark.parametrize("name", ["lite0-random", "lite0-stages-random", "resnet10", "convnet"])
def test_features_are_the_same_and_the_encoder_keeps_its_norms(name):
    encoder = build_encoder(name, channels=3, image_size=32)
    randomize_norms(encoder)
    encoder.train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    quick = folded(encoder)
    images = torch.rand(5, 3, 32, 32)
    features = quick(images)
    assert encoder.training
    torch.testing.assert_close(encoder.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(features, encoder.eval()(images), rtol=1e-4, atol=1e-5)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in quick.modules())


class Unusual(nn.Module):
    """Networks that cannot be folded: the output of a convolution is used twice or changed in place, the convolution runs
    twice, or its weight is computed."""

    feature_dim = 4

    def __init__(self, case):
        super().__init__()
        self.case = case
        self.convolution, self.norm, self.second = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        if case == "computed":
            nn.utils.parametrizations.weight_norm(self.convolution)

    def forward(self, images):
        y = self.convolution(images)
        if self.case == "in place":
            y = y.relu_()
        normed = self.norm(y)
        if self.case == "output":
            normed = normed + y
        if self.case == "convolution":
            normed = normed + self.second(self.convolution(images))
        return normed.mean((2, 3))


@pytest.mark.parametrize("case", ["output", "in place", "convolution", "computed"])
def test_networks_that_cannot_be_folded_stay_as_they_are(case):
    encoder = wrap_encoder(Unusual(case), channels=3, image_size=16)
    randomize_norms(encoder)
    assert folded(encoder) is encoder


@pytest.mark.parametrize("kept", [threading.Lock(), torch.ones(1, requires_grad=True) * 2], ids=["lock", "computed"])
def test_an_encoder_that_cannot_be_copied_stays_as_it_is(kept):
    encoder = wrap_encoder(Unusual("plain"), channels=3, image_size=16)
    encoder.backbone.kept = kept
    assert folded(encoder) is encoder


def test_an_encoder_without_batch_norms_is_not_copied(monkeypatch):
    monkeypatch.setattr("coulomb.models.folding.deepcopy", None)
    encoder = build_encoder("vit", channels=3, image_size=32)
    assert folded(encoder) is encoder
