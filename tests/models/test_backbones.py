import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, save_encoder


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


# Published counts with a layer of 1000 classes (11,689,512; 21,797,672; 25,557,032), without that layer.
@pytest.mark.parametrize(
    "name, published, width",
    [("resnet18", 11_689_512, 512), ("resnet34", 21_797_672, 512), ("resnet50", 25_557_032, 2048)],
)
def test_parameter_counts_are_the_published_ones(name, published, width):
    encoder = build_encoder(name, channels=3, image_size=224)
    assert parameters(encoder.backbone) == published - (width * 1000 + 1000)
    assert encoder.feature_dim == width


def test_stem_follows_the_image_size():
    small = build_encoder("resnet10", channels=3, image_size=64, width=8).backbone
    large = build_encoder("resnet10", channels=3, image_size=65, width=8).backbone
    forced = build_encoder("resnet10", channels=3, image_size=224, width=8, small_stem=True).backbone
    image = torch.rand(1, 3, 64, 64)
    assert small.stem(image).shape == (1, 8, 64, 64)
    assert large.stem(image).shape == (1, 8, 16, 16)
    assert forced.stem(image).shape == (1, 8, 64, 64)


def test_zero_init_residual():
    image = torch.rand(2, 3, 16, 16)
    for zero in (True, False):
        net = build_encoder("resnet50", channels=3, image_size=16, width=4, zero_init_residual=zero).backbone.eval()
        block = net.stages[0][1]  # an identity shortcut
        x = net.stages[0][0](net.stem(image))
        assert torch.equal(block(x), x) == zero


def test_width_scales_features():
    assert build_encoder("resnet10", channels=3, image_size=32, width=32).feature_dim == 256


@pytest.mark.parametrize(
    ("size", "maps"), [(32, [16, 16, 8, 4]), (16, [16, 16, 8, 4]), (40, [20, 10, 10, 5, 3]), (5, [5, 5, 3, 2])]
)
def test_pooled_convnet_keeps_larger_maps(size, maps):
    encoder = build_encoder("convnet-pool", channels=3, image_size=size, width=4)
    seen = []
    for layer in encoder.backbone.layers:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[-1]))
    assert encoder(torch.rand(2, 3, size, size)).shape == (2, encoder.feature_dim) == (2, 32)
    assert seen == maps


def test_pooled_convnet_is_saved(tmp_path):
    encoder = build_encoder("convnet-pool", channels=3, image_size=32, width=4).eval()
    save_encoder(encoder, tmp_path)
    image = torch.rand(2, 3, 32, 32)
    assert torch.equal(load_encoder(tmp_path).eval()(image), encoder(image))


def test_residual_blocks_compute_their_formula():
    net = build_encoder("resnet18", channels=3, image_size=16, width=4, zero_init_residual=False).backbone
    block = net.stages[1][0]
    for norm in block.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight)
            nn.init.uniform_(norm.bias)
            norm.running_mean.uniform_()
            norm.running_var.uniform_(0.5, 2)
    block.double().eval()
    x = torch.rand(2, 4, 6, 6, dtype=torch.float64)

    def norm(layer, y):
        shape = (1, -1, 1, 1)
        scaled = (y - layer.running_mean.view(shape)) / (layer.running_var.view(shape) + layer.eps).sqrt()
        return scaled * layer.weight.view(shape) + layer.bias.view(shape)

    def conv(layer, y, stride, padding):
        return nn.functional.conv2d(y, layer.weight, stride=stride, padding=padding)

    y = norm(block.bn1, conv(block.conv1, x, 2, 1)).clamp(min=0)
    y = norm(block.bn2, conv(block.conv2, y, 1, 1))
    y = y + norm(block.shortcut[1], conv(block.shortcut[0], x, 2, 0))
    torch.testing.assert_close(block(x), y.clamp(min=0))


@pytest.mark.parametrize(("name", "width", "groups"), [("resnet18", 64, 32), ("resnet10", 12, 2), ("convnet", 5, 1)])
def test_with_group_norm_an_image_does_not_depend_on_the_others(name, width, groups):
    batch, group = (
        build_encoder(name, channels=3, image_size=16, width=width, norm=norm) for norm in ("batch", "group")
    )
    norms = [part for part in group.modules() if isinstance(part, nn.GroupNorm)]
    assert norms[0].num_groups == groups and norms[0].num_channels == width
    assert len(norms) == sum(isinstance(part, nn.BatchNorm2d) for part in batch.modules())
    assert not any(isinstance(part, nn.BatchNorm2d) for part in group.modules())
    assert [name for name, _ in group.named_parameters()] == [name for name, _ in batch.named_parameters()]
    assert all(torch.equal(a, b) for a, b in zip(group.parameters(), batch.parameters(), strict=True))
    images = torch.rand(4, 3, 16, 16)
    torch.testing.assert_close(group.train()(images)[:2], group(images[:2]))
    assert not torch.allclose(batch.train()(images)[:2], batch(images[:2]), rtol=0.01)


def test_group_norm_is_saved(tmp_path):
    encoder = build_encoder("resnet10", channels=3, image_size=16, width=8, norm="group")
    loaded = load_encoder(save_encoder(encoder, tmp_path) or tmp_path)
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(loaded(images), encoder.eval()(images))
    for norm in ("layer", 1, None, ["group"]):
        with pytest.raises(InputError, match=r"norm=.* of resnet10: must be one of batch, group"):
            build_encoder("resnet10", channels=3, image_size=16, norm=norm)
