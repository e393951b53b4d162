import copy
import sys

import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, save_encoder, wrap_encoder
from coulomb.models.blocks import ordered_blocks
from coulomb.models.library_models import HFBackbone
from coulomb.models.lora import adapted_layers, add_lora, merge_lora, merged

pytest.importorskip("peft", reason="peft is not installed")


def encoder_of(name):
    options = {} if name == "lite0" else {"width": 12}
    encoder = build_encoder(name, channels=3, image_size=32 if name == "lite0" else 16, **options)
    if name == "lite0":
        return encoder
    with torch.no_grad():
        for norm in (part for part in encoder.modules() if isinstance(part, nn.BatchNorm2d)):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return encoder


def move(encoder, by=0.05):
    """Changes what trains, as an update would."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.requires_grad:
                parameter.add_(by * torch.randn(parameter.shape))


def images_for(encoder):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(4, 3, encoder.image_size, encoder.image_size, generator=generator)


NAMES = ["convnet", "resnet10", "vit", "lite0"]


@pytest.mark.parametrize("name", NAMES)
def test_features_do_not_change_at_first(name):
    encoder = encoder_of(name).eval()
    images = images_for(encoder)
    before, state = encoder(images), torch.get_rng_state()
    add_lora(encoder, 3)
    assert torch.equal(encoder(images), before)
    assert torch.equal(torch.get_rng_state(), state)
    for part in encoder.train().modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    assert torch.equal(encoder(images), before)


@pytest.mark.parametrize("name", NAMES)
def test_merged_weights_have_the_same_keys_and_features(name, tmp_path):
    encoder = encoder_of(name).eval()
    images = images_for(encoder)
    keys, plain = list(encoder.state_dict()), copy.deepcopy(encoder.state_dict())
    add_lora(encoder, 3)
    move(encoder)
    features = encoder(images)
    alone = merged(encoder)
    assert list(alone.state_dict()) == keys
    assert torch.allclose(alone(images), features, atol=1e-5)
    assert not torch.allclose(features, load(plain, name)(images), atol=1e-3)
    assert torch.equal(encoder(images), features), "merging a copy leaves the encoder as it is"
    save_encoder(encoder, tmp_path)
    saved = load_encoder(tmp_path)
    assert list(saved.state_dict()) == keys
    assert torch.allclose(saved(images), features, atol=1e-5)


def load(state, name):
    encoder = encoder_of(name).eval()
    encoder.load_state_dict(state)
    return encoder


def test_only_the_additions_train_and_the_rest_is_bit_identical():
    encoder = encoder_of("resnet10")
    before = {name: p.clone() for name, p in encoder.backbone.named_parameters()}
    add_lora(encoder, 2)
    trains = {name for name, p in encoder.named_parameters() if p.requires_grad}
    assert trains and all(".lora_A." in name or ".lora_B." in name for name in trains)
    move(encoder)
    after = {name.replace(".base_layer", ""): p for name, p in encoder.backbone.named_parameters()}
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_ranks_and_seeds():
    first, again, other = (encoder_of("convnet") for _ in range(3))
    add_lora(first, 5, seed=1), add_lora(again, 5, seed=1), add_lora(other, 5, seed=2)
    layers = [next(iter(adapted_layers(each).values())) for each in (first, again, other)]
    weights = [layer.lora_A["default"].weight for layer in layers]
    assert weights[0].shape == (5, 3, 3, 3)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


class Mixed(nn.Module):
    """A depthwise convolution, an attention whose projection is not called, and a layer that is never used."""

    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(3, 3, 3, groups=3)
        self.pointwise = nn.Conv2d(3, 8, 1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.unused = nn.Linear(8, 8)

    def forward(self, x):
        tokens = self.pointwise(self.depthwise(x)).flatten(2).transpose(1, 2)
        return self.attention(tokens, tokens, tokens)[0].mean(1)


def test_other_layers_are_left_as_they_are_and_counted():
    encoder = wrap_encoder(Mixed(), channels=3, image_size=16)
    sentence = add_lora(encoder, 2)
    assert set(adapted_layers(encoder)) == {"backbone.pointwise"}
    assert sentence.startswith("0 linear layers and 1 convolutions adapted with rank 2, 3 (")


class Standardized(nn.Conv2d):
    """A convolution that standardizes its weight, so that additions to it cannot be merged."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight / weight.std((1, 2, 3), keepdim=True), self.bias)


@pytest.mark.parametrize(
    ("module", "part"),
    [
        (nn.Sequential(Standardized(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), "after merging"),
        (nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), "no linear layer"),
    ],
)
def test_networks_that_cannot_be_adapted_are_refused(module, part):
    with pytest.raises(InputError, match=f"tune='lora:2'.*{part}"):
        add_lora(wrap_encoder(module, channels=3, image_size=16), 2)


def test_without_peft_the_message_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match=r"pip install 'coulomb\[lora\]'"):
        add_lora(encoder_of("convnet"), 2)


def test_adapted_layers_count_as_the_layer_that_they_adapt():
    encoder = encoder_of("convnet")
    before = len(ordered_blocks(encoder.backbone))
    add_lora(encoder, 2)
    assert len(ordered_blocks(encoder.backbone)) == before


def test_merging_in_place_and_without_additions():
    encoder = encoder_of("vit").eval()
    assert merged(encoder) is encoder
    add_lora(encoder, 2)
    move(encoder)
    images = images_for(encoder)
    features = encoder(images)
    assert merge_lora(encoder) is encoder and not adapted_layers(encoder)
    assert torch.allclose(encoder(images), features, atol=1e-5)


def test_the_layers_of_lite0():
    encoder = encoder_of("lite0")
    sentence = add_lora(encoder, 8)
    # The stem, 15 expansions, 16 projections and the last convolution; 16 depthwise convolutions stay.
    assert sentence.startswith("0 linear layers and 33 convolutions adapted with rank 8, 16 (")


def library_encoder(kind):
    """A tiny network of transformers with random weights."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    options = {
        "vit": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
        "convnext": {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 8, 8, 8]},
        "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4},
    }[kind]
    size = {"image_size": 32, "patch_size": 8} if kind == "vit" else {}
    size |= {"image_size": 32} if kind == "swin" else {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **options, **size))
    return wrap_encoder(HFBackbone(model), channels=3, image_size=32)


@pytest.mark.parametrize("kind", ["vit", "convnext", "resnet", "swin"])
def test_networks_of_transformers(kind):
    # Matrix products of Swin round differently if their weights need gradients.
    encoder = library_encoder(kind).eval().requires_grad_(False)
    images, keys = images_for(encoder), list(encoder.state_dict())
    before = encoder(images)
    add_lora(encoder, 2)
    assert torch.equal(encoder(images), before)
    move(encoder)
    features = encoder(images)
    assert not torch.allclose(features, before, atol=1e-4)
    # Every addition has an effect: none is in a layer that the forward pass skips.
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in encoder.named_parameters() if ".lora_B." in n)
    alone = merged(encoder)
    assert list(alone.state_dict()) == keys
    assert torch.allclose(alone(images), features, atol=1e-5)
