"""Encoders without the batch norms that follow a convolution."""

import pytest
import torch
from torch import nn

from coulomb.index.folding import folded
from coulomb.models import build_encoder
from coulomb.models.encoder import wrap_encoder


def randomise_norms(encoder):
    """Gives each batch norm other statistics and scales than those of its initialisation."""
    draw = torch.Generator().manual_seed(0)
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(generator=draw)
            module.running_var.uniform_(0.5, 2, generator=draw)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=draw)
            nn.init.normal_(module.bias, generator=draw)


@pytest.mark.parametrize("name", ["lite0-random", "resnet10", "convnet"])
def test_features_are_the_same_and_the_encoder_keeps_its_norms(name):
    encoder = build_encoder(name, channels=3, image_size=32)
    randomise_norms(encoder)
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
    """Networks that cannot be folded: the output of a convolution is used twice, or the convolution is."""

    feature_dim = 4

    def __init__(self, twice):
        super().__init__()
        self.twice = twice
        self.convolution, self.norm, self.second = nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, images):
        y = self.convolution(images)
        other = y if self.twice == "output" else self.second(self.convolution(images))
        return (other + self.norm(y)).mean((2, 3))


@pytest.mark.parametrize("twice", ["output", "convolution"])
def test_networks_that_cannot_be_folded_stay_as_they_are(twice):
    encoder = wrap_encoder(Unusual(twice), channels=3, image_size=16)
    randomise_norms(encoder)
    assert folded(encoder) is encoder
