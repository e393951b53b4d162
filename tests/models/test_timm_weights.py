"""Weights of timm, saved by the library with random values: features as by the library, its folders, wrong files."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, load_encoder, save_encoder
from coulomb.models.library_preprocessing import of_timm

try:
    import timm
except Exception as error:  # also a torchvision for another torch
    pytest.skip(f"timm: {error}", allow_module_level=True)

MODELS = {
    "resnet10t": {"input_size": [3, 176, 176], "crop_pct": 0.95, "interpolation": "bilinear"},
    "mobilenetv3_small_050": {"input_size": [3, 96, 96], "crop_pct": 0.875, "interpolation": "bicubic"},
    "vit_tiny_patch16_224": {"input_size": [3, 224, 224], "crop_pct": 0.9, "mean": [0.5] * 3, "std": [0.5] * 3},
    "convnext_atto": {"input_size": [3, 99, 99], "crop_pct": 0.95, "crop_mode": "squash", "interpolation": "bicubic"},
}


def save(name, folder, **entries):
    torch.manual_seed(0)
    config = MODELS[name] | entries
    model = timm.create_model(name, pretrained=False, num_classes=7, pretrained_cfg_overlay=config)
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return model.eval()


def pictures():
    draw = np.random.default_rng(1)
    shapes = [(240, 240, 3), (371, 240, 3), (245, 390, 3), (120, 133, 3), (250, 260), (250, 241, 4)]
    return [Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]


@pytest.mark.parametrize("name", MODELS)
def test_features_are_those_of_the_library(name, tmp_path):
    model = save(name, tmp_path / "model")
    model.reset_classifier(0)
    config = timm.data.resolve_data_config({}, model=model)
    assert {key: list(config[key]) if key == "input_size" else config[key] for key in ("input_size", "crop_pct")} == {
        key: MODELS[name][key] for key in ("input_size", "crop_pct")
    }
    transform = timm.data.create_transform(**config)
    size = config["input_size"][1]
    encoder = build_encoder(str(tmp_path / "model"), channels=3, image_size=size, mean=[0.1] * 3, std=[0.2] * 3).eval()
    save_encoder(encoder, tmp_path / "saved")
    loaded = load_encoder(tmp_path / "saved")
    assert encoder.name == f"timm:{name}" and loaded.preprocessing == encoder.preprocessing
    for picture in pictures():
        with torch.no_grad():
            expected = model(transform(picture.convert("RGB"))[None])
            for each in (encoder, loaded):
                features = each(each.preprocessing(picture)[None])
                torch.testing.assert_close(features, expected, atol=1e-6, rtol=1e-6)


def test_published_configurations_are_read_as_the_library_does():
    for name in (
        "resnet18.a1_in1k",
        "convnext_tiny.fb_in22k",
        "efficientnet_lite0.ra_in1k",
        "vit_small_patch14_dinov2",
    ):
        known = timm.get_pretrained_cfg(name)
        if known is not None:
            config = timm.data.resolve_data_config({}, pretrained_cfg=known.to_dict())
            assert of_timm(timm, config, name, 3).side == config["input_size"][1]


def refusal(name, **options):
    with pytest.raises(InputError) as caught:
        build_encoder(str(name), **{"channels": 3, "image_size": 96} | options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_wrong_files(tmp_path):
    name, folder = "mobilenetv3_small_050", tmp_path / "model"
    save(name, folder)
    assert "weights are for 3 channels and the images have 1" in refusal(folder, channels=1)
    weights = load_file(folder / "model.safetensors")
    save_file({key: value for key, value in weights.items() if "blocks.1.0" not in key}, folder / "model.safetensors")
    assert "missing (blocks.1.0.bn1." in refusal(folder)
    save_file(weights | {"blocks.9.weight": torch.zeros(1)}, folder / "model.safetensors")
    assert "1 surplus (blocks.9.weight)" in refusal(folder)
    save_file(weights | {"conv_stem.weight": torch.zeros(1)}, folder / "model.safetensors")
    assert "1 of another shape (conv_stem.weight)" in refusal(folder)
    save_file({key: value for key, value in weights.items() if "classifier" not in key}, folder / "model.safetensors")
    assert build_encoder(str(folder), channels=3, image_size=96).feature_dim == 1024
    save(name, folder, crop_mode="border")
    assert "crop_mode='border'" in refusal(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architecture": "no_such"}))
    assert "has no model 'no_such'" in refusal(folder)


def test_without_weights_and_at_another_size(tmp_path):
    save("vit_tiny_patch16_224", tmp_path / "model")
    random = build_encoder(str(tmp_path / "model"), channels=1, image_size=64, weights=False)
    assert random.preprocessing is None and random.feature_dim == 192
    encoder = build_encoder(str(tmp_path / "model"), channels=3, image_size=96).eval()  # positions are interpolated
    assert (encoder.preprocessing.side, encoder.preprocessing.resize) == (96, 106)
    save_encoder(encoder, tmp_path / "saved")
    images = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        assert torch.equal(load_encoder(tmp_path / "saved")(images), encoder(images))
