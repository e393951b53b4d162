import pytest
import torch
from torch import nn

from coulomb.models import build_encoder
from coulomb.models.blocks import ordered_blocks


def names(backbone):
    """Names of the modules in the groups of `ordered_blocks`."""
    name_of = {id(part): name for name, part in backbone.named_modules()}
    return [[name_of[id(part)] for part in group] for group in ordered_blocks(backbone)]


def conv_norm(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    """A block whose layers are in a list named ``layer``, as in transformers' ResNet."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(conv_norm(2, 2), conv_norm(2, 2))


class Stage(nn.Module):
    """A downsampling layer and a list of blocks."""

    def __init__(self, depth):
        super().__init__()
        self.downsampling = nn.Conv2d(2, 2, 2)
        self.layers = nn.ModuleList(Residual() for _ in range(depth))


def built_in(name):
    return build_encoder(name, channels=3, image_size=32).backbone


def test_built_in_resnets_count_residual_blocks():
    assert names(built_in("resnet10")) == [["stem"], *([f"stages.{i}.0"] for i in range(4)), []]
    assert len(names(built_in("resnet50"))) == 16 + 2


def test_lite0_counts_its_inverted_residuals():
    stem, tail = ["_conv_stem", "_bn0"], ["_conv_head", "_bn1"]
    assert names(built_in("lite0-random")) == [stem, *([f"_blocks.{i}"] for i in range(16)), tail]


def test_the_vit_counts_layers_and_its_norm_follows_them():
    assert names(built_in("vit")) == [["embed"], *([f"blocks.{i}"] for i in range(6)), ["norm"]]


def test_a_network_without_lists_of_blocks_counts_layers_with_their_norm():
    groups = names(built_in("convnet"))
    assert groups[0] == groups[-1] == [] and len(groups) == 5 + 2
    assert groups[1] == ["layers.0", "layers.1", "layers.2"]
    flat = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    assert names(flat) == [["0"], ["1", "2", "3"], ["4"], []]
    assert names(nn.Linear(2, 2)) == [[], [""], []]


def test_stages_are_opened_and_what_lies_between_blocks_belongs_to_the_next_one():
    network = nn.Module()
    network.stem, network.stages, network.norm = (
        nn.Conv2d(3, 2, 3),
        nn.ModuleList([Stage(1), Stage(2)]),
        nn.LayerNorm(2),
    )
    assert names(network) == [
        ["stem", "stages.0.downsampling"],
        ["stages.0.layers.0"],
        ["stages.1.downsampling", "stages.1.layers.0"],
        ["stages.1.layers.1"],
        ["norm"],
    ]


def test_a_network_within_a_list_is_opened():
    wrapped = nn.Sequential(built_in("resnet10"), nn.Flatten(), nn.Linear(512, 8))
    assert names(wrapped) == [["0.stem"], *([f"0.stages.{i}.0"] for i in range(4)), ["2"]]
    assert names(nn.Sequential(conv_norm(3, 4), conv_norm(4, 5), nn.Linear(5, 2))) == [[], ["0"], ["1"], ["2"]]


@pytest.mark.parametrize(
    ("kind", "blocks", "last"),
    [
        ("resnet", 16, "encoder.stages.3.layers.2"),
        ("convnext", 18, "encoder.stages.3.layers.2"),
        ("swin", 12, "encoder.layers.3.blocks.1"),
        ("mobilenet_v2", 16, "layer.15"),
        ("dinov2", 12, "encoder.layer.11"),
    ],
)
def test_networks_of_transformers(kind, blocks, last):
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind))
    groups = names(model)
    assert len(groups) == blocks + 2
    assert groups[-2] == [last]
    assert groups[-1] in (["layernorm"], ["conv_1x1"], ["layernorm", "pooler"], [])


@pytest.mark.parametrize("name", ["convnet", "resnet10", "vit", "lite0-random"])
def test_each_parameter_is_in_at_most_one_group(name):
    backbone = built_in(name)
    found = [id(p) for group in ordered_blocks(backbone) for part in group for p in part.parameters()]
    rest = {n for n, p in backbone.named_parameters() if id(p) not in found}
    assert len(found) == len(set(found))
    assert rest == ({"positions"} if name == "vit" else set())
