"""Weights for photos adapted to other channels: against timm's formula, by their response, saved and loaded."""

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, save_encoder
from coulomb.models.stem import adapted_stem


def loop(weight, channels):
    """Channel c has kernel c mod 3, times 3/channels; one channel has the sum (timm.models.adapt_input_conv)."""
    out = np.zeros((len(weight), channels, *weight.shape[2:]))
    for c in range(channels):
        out[:, c] = weight.sum(1) if channels == 1 else weight[:, c % 3] * 3 / channels
    return out


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6, 8, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_kernels(channels, dtype):
    weight = torch.randn(5, 3, 3, 3).to(dtype)
    adapted = adapted_stem(weight, channels)
    assert adapted.dtype == dtype
    expected = loop(weight.double().numpy(), channels)
    assert np.abs(adapted.double().numpy() - expected).max() < (1e-6 if dtype == torch.float32 else 4e-3)
    if channels == 3:
        assert adapted is weight


@pytest.mark.parametrize("channels", [1, 3, 6, 12])
def test_response_to_a_gray_image_stays(channels):
    weight, gray = torch.randn(5, 3, 3, 3, dtype=torch.float64), torch.rand(2, 1, 9, 9, dtype=torch.float64)
    expected = torch.nn.functional.conv2d(gray.expand(-1, 3, -1, -1), weight)
    found = torch.nn.functional.conv2d(gray.expand(-1, channels, -1, -1), adapted_stem(weight, channels))
    assert torch.allclose(found, expected, atol=1e-5)


def test_lite0_for_six_channels(tmp_path):
    mean, std = [0.1 * k for k in range(1, 7)], [0.1] * 6
    photos = build_encoder("lite0", channels=3, image_size=32)
    encoder = build_encoder("lite0", channels=6, image_size=32, mean=mean, std=std)
    assert encoder.channels == 6
    assert encoder.preprocessing is None  # it is for photos
    assert torch.allclose(encoder.normalize.mean.flatten(), torch.tensor(mean))
    tensors = photos.backbone.state_dict()
    for name, tensor in encoder.backbone.state_dict().items():
        expected = tensors[name]
        if name == "_conv_stem.weight":
            expected = torch.from_numpy(loop(expected.double().numpy(), 6)).float()
        assert torch.allclose(tensor, expected, atol=1e-7), name
    encoder.eval()
    gray = torch.rand(2, 1, 32, 32)
    photos.eval()
    photos.normalize.mean.zero_(), photos.normalize.std.fill_(1)
    encoder.normalize.mean.zero_(), encoder.normalize.std.fill_(1)
    with torch.no_grad():
        assert torch.allclose(encoder(gray.expand(-1, 6, -1, -1)), photos(gray.expand(-1, 3, -1, -1)), atol=1e-4)
        save_encoder(encoder, tmp_path / "saved")
        images = torch.rand(2, 6, 32, 32)
        assert torch.equal(load_encoder(tmp_path / "saved")(images), encoder(images))


def test_a_run_folder_of_photos_and_of_bands(tmp_path):
    for channels in (3, 5):
        save_encoder(build_encoder("convnet", channels=channels, image_size=16, width=8), tmp_path / str(channels))
    stem = build_encoder(str(tmp_path / "3"), channels=3, image_size=16).backbone.state_dict()
    adapted = build_encoder(str(tmp_path / "3"), channels=5, image_size=16).backbone.state_dict()
    first = next(name for name, tensor in stem.items() if tensor.ndim == 4)
    assert np.allclose(adapted[first].numpy(), loop(stem[first].numpy(), 5), atol=1e-6)
    assert build_encoder(str(tmp_path / "5"), channels=5, image_size=16).channels == 5
    with pytest.raises(InputError, match="weights are for 5 channels and the images have 3"):
        build_encoder(str(tmp_path / "5"), channels=3, image_size=16)
    random = build_encoder(str(tmp_path / "3"), channels=5, image_size=16, weights=False)
    assert random.channels == 5


def test_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    name = str(tmp_path / "vit")
    photos = build_encoder(name, channels=3, image_size=32)
    encoder = build_encoder(name, channels=6, image_size=32).eval()
    kernel = next(
        tensor for tensor in photos.backbone.state_dict().values() if tensor.ndim == 4 and tensor.shape[1] == 3
    )
    found = next(
        tensor for tensor in encoder.backbone.state_dict().values() if tensor.ndim == 4 and tensor.shape[1] == 6
    )
    assert np.allclose(found.numpy(), loop(kernel.numpy(), 6), atol=1e-6)
    images = torch.rand(2, 6, 32, 32)
    with torch.no_grad():
        features = encoder(images)
        assert features.shape == (2, 16)
        save_encoder(encoder, tmp_path / "saved")
        assert torch.equal(load_encoder(tmp_path / "saved")(images), features)
