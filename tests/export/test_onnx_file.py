"""One ONNX file gives the features of PyTorch, or is not written."""

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from coulomb.export import to_onnx
from coulomb.ground.errors import InputError
from coulomb.models import build_encoder
from coulomb.models.image_encoder import ImageEncoder
from export_cases import built, photo, published, run


def features(path, images):
    return onnxruntime.InferenceSession(path).run(["features"], {"images": images})[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("convnet", {"width": 8}),
        ("convnet", {"width": 8, "channels": 1}),
        ("resnet10", {"width": 8, "adapter": "whitening"}),
        ("vit", {"width": 32, "depth": 2, "heads": 2, "adapter": "linear"}),
        pytest.param("lite0-random", {"adapter": "linear"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_features_of_a_run_are_those_of_encode(tmp_path, name, options):
    loaded = run(tmp_path / "run", name, **options)
    result = to_onnx(loaded, tmp_path / "m.onnx")
    assert result["check"]["cosine"] >= 0.99999 and result["check"]["batches"] == [1, 2, 3, 64, 257]
    for size in ((61, 45), (32, 32), (48, 48)):
        images = np.stack([photo(*size, seed=seed) for seed in range(3)])
        np.testing.assert_allclose(
            features(tmp_path / "m.onnx", images), loaded.encode(list(images)), rtol=1e-3, atol=1e-4
        )


@pytest.mark.slow
def test_published_weights_keep_their_preprocessing_and_unit_length(tmp_path):
    loaded = published("convnet", width=8)
    result = to_onnx(loaded, tmp_path / "m.onnx", unit=True)
    assert result["unit"] and result["features"] == loaded.encoder.feature_dim
    image = photo(57, 91)
    expected = torch.nn.functional.normalize(loaded.encode([image]), dim=1)
    np.testing.assert_allclose(features(tmp_path / "m.onnx", image[None]), expected, atol=1e-5)
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["preparation"] == "bicubic, short side to 36 pixels, center crop of 32"
    assert b"/src/" not in model.SerializeToString(), "a path of this machine"


@pytest.mark.slow
def test_transformers_are_exported(tmp_path):
    T = pytest.importorskip("transformers")
    config = T.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8
    )
    T.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "vit")
    T.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    loaded = ImageEncoder(build_encoder(str(tmp_path / "vit"), channels=3, image_size=32), "vit")
    assert to_onnx(loaded, tmp_path / "m.onnx")["check"]["cosine"] >= 0.99999


@pytest.mark.slow
def test_script_needs_neither_coulomb_nor_torch(tmp_path):
    loaded = published("convnet", width=8)
    to_onnx(loaded, tmp_path / "it's.onnx")
    Image.fromarray(photo(40, 30)).save(tmp_path / "a.png")
    blocked = (
        "import sys; sys.modules['coulomb'] = sys.modules['torch'] = None; sys.argv = sys.argv[1:]; import runpy; "
    )
    command = [
        sys.executable,
        "-I",
        "-c",
        blocked + "runpy.run_path(sys.argv[0], run_name='__main__')",
        tmp_path / "it's.py",
        "a.png",
    ]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed.split()[0] == "a.png"
    np.testing.assert_allclose(
        np.array(printed.split()[1:], float), loaded.encode([photo(40, 30)])[0], rtol=1e-3, atol=1e-4
    )


def test_nothing_is_written_if_features_differ(tmp_path, monkeypatch):
    loaded = published("convnet", width=8)
    other = built("convnet", width=8)
    with torch.no_grad():
        other.backbone.layers[0].weight += 0.02
    monkeypatch.setattr("coulomb.export.onnx_file.network_graph", lambda encoder, unit: graph(other, unit))
    from coulomb.export.network_graph import network_graph as graph

    with pytest.raises(InputError, match=r"smallest cosine 0\.\d{7}, required 0.99999.*nothing was written"):
        to_onnx(loaded, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_eight_bits_are_smaller_and_their_loss_is_measured(tmp_path):
    classes = np.repeat([0, 1], 60)
    images = np.stack([photo(40, 40, seed) // 2 + (120 if label else 0) for seed, label in enumerate(classes)])
    loaded = published("convnet", width=32)
    whole = to_onnx(loaded, tmp_path / "m.onnx")
    result = to_onnx(loaded, tmp_path / "i.onnx", int8=True, on=(images, classes))
    assert result["bytes"] < whole["bytes"] and (tmp_path / "i.onnx").stat().st_size == result["bytes"]
    loss = result["int8"]
    assert loss["images"] == 120 and 0.3 < loss["neighbors_kept"] < 1
    assert loss["knn"] == {"float": 1.0, "int8": pytest.approx(1, abs=0.1), "k": 20}
    with pytest.raises(InputError, match="int8=True: needs photos"):
        to_onnx(loaded, tmp_path / "other.onnx", int8=True)


@pytest.mark.parametrize(
    ("out", "message"),
    [("m.bin", "must end in .onnx"), ("nowhere/m.onnx", "there is no folder"), ("old.onnx", "already exists")],
)
def test_wrong_files_are_refused(tmp_path, out, message):
    (tmp_path / "old.onnx").touch()
    with pytest.raises(InputError, match=message):
        to_onnx(published("convnet", width=8), tmp_path / out)


def test_a_missing_library_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"needs onnxruntime: pip install 'coulomb\[export\]'"):
        to_onnx(published("convnet", width=8), tmp_path / "m.onnx")


def test_networks_that_cannot_be_converted_are_refused(tmp_path):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, : int(x.sum().item() > 0) + 1]

    from coulomb.models import wrap_encoder

    encoder = wrap_encoder(Odd(), channels=3, image_size=16)
    encoder.preprocessing = None
    with pytest.raises(InputError, match="PyTorch cannot convert this network to ONNX"):
        from coulomb.export.network_graph import network_graph

        network_graph(encoder.eval(), False)
