"""Published weights by name: `coulomb.load`, `encode`, `embed`, and what has none."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.evaluation.contestants import contestants
from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, save_encoder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import require_weights, run_path
from coulomb.training.plan.resolve import reopen
from coulomb.training.run import Run

SIDE = 48
QUIET = {"evaluate": False, "progress": False}


@pytest.fixture(scope="module")
def lite0():
    return coulomb.load("lite0", image_size=SIDE)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Smooth JPEG photos of several sizes, larger than the input."""
    root = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for number in range(7):
        small = draw.integers(0, 256, (9, 7, 3), dtype=np.uint8)
        size = (300 + 37 * number, 420 - 29 * number)
        Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(root / f"{number}.jpg", quality=90)
    return root


def library_features(encoder, image):
    """The features of a Pillow image by the authors' steps, without coulomb's preparation."""
    image = image.convert("RGB")
    short = round(256 * SIDE / 224)
    width, height = (short * side // min(image.size) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
    pixels = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)), dtype=np.float32)
    with torch.no_grad():
        return encoder.backbone((torch.from_numpy(pixels).permute(2, 0, 1)[None] - 127) / 128)


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))


def test_features_equal_the_authors_steps_at_the_original_resolution(lite0, photos):
    paths = sorted(photos.iterdir())
    wanted = torch.cat([library_features(lite0.encoder, Image.open(path)) for path in paths])
    close(lite0.encode(paths), wanted)
    assert lite0.encode(paths).shape == (7, lite0.encoder.feature_dim)


def test_embed_writes_what_encode_returns(lite0, photos, tmp_path):
    wanted = lite0.encode(photos)
    for options in ({}, {"workers": 2, "batch_size": 2}):
        out = tmp_path / f"{len(options)}.parquet"
        assert lite0.embed(photos, out, progress=False, **options) == {"rows": 7, "features": 1280, "failed": []}
        table = pq.read_table(out)
        close(torch.tensor(table["features"].to_pylist()), wanted)
        assert table["id"].to_pylist() == [f"{number}.jpg" for number in range(7)]


def test_features_do_not_depend_on_other_images(lite0, photos):
    together = lite0.encode(photos, batch_size=3)
    for path, row in zip(sorted(photos.iterdir()), together, strict=True):
        close(lite0.encode(path), row[None])


def test_unreadable_images_are_listed(lite0, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "some")
    (tmp_path / "some" / "3.jpg").write_bytes(b"torn")
    done = lite0.embed(tmp_path / "some", tmp_path / "f.parquet", progress=False)
    assert done["rows"] == 6 and [failure["id"] for failure in done["failed"]] == ["3.jpg"]
    with pytest.raises(InputError, match=r"3.jpg: not an image"):
        lite0.encode(tmp_path / "some")


def color(seed=0):
    small = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 8, 4), dtype=np.uint8))
    return np.asarray(small.resize((130, 90), Image.Resampling.BICUBIC))


def test_features_of_every_kind_of_image_are_those_of_its_rgb_version(lite0, tmp_path):
    rgba = color()
    rgb, gray = np.ascontiguousarray(rgba[..., :3]), np.ascontiguousarray(rgba[..., 0])
    wanted, wanted_gray = lite0.encode(rgb), lite0.encode(np.repeat(gray[..., None], 3, axis=2))
    opaque = np.dstack([rgb, np.full(rgb.shape[:2], 255, np.uint8)])
    colors = [Image.fromarray(opaque, "RGBA"), rgb.astype(np.float32) / 255, torch.from_numpy(rgb).permute(2, 0, 1)]
    colors += [rgb.astype(np.uint16) * 257, torch.from_numpy(rgb).permute(2, 0, 1) / 255]
    for same in colors:
        assert torch.equal(lite0.encode([same]), wanted)
    grays = [
        gray,
        Image.fromarray(gray),
        Image.fromarray(gray.astype(np.uint16) * 257),
        gray / 255,
        Image.fromarray(gray).convert("LA"),
    ]
    for same in grays:
        assert torch.equal(lite0.encode([same]), wanted_gray)
    over_white = Image.alpha_composite(Image.new("RGBA", (130, 90), "white"), Image.fromarray(rgba, "RGBA")).convert(
        "RGB"
    )
    see_through = Image.fromarray(rgba, "RGBA")
    see_through.save(tmp_path / "a.png")
    for same in (see_through, tmp_path / "a.png"):
        assert torch.equal(lite0.encode([same]), lite0.encode(over_white))
    assert not torch.equal(lite0.encode(over_white), wanted)
    turned = Image.fromarray(rgb).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "b.png", exif=exif)
    assert torch.equal(lite0.encode(tmp_path / "b.png"), wanted)


def test_images_smaller_than_the_input(lite0):
    tiny = np.random.default_rng(0).integers(0, 256, (5, 9, 3), dtype=np.uint8)
    close(lite0.encode(tiny), library_features(lite0.encoder, Image.fromarray(tiny)))


def test_the_encoder_is_frozen_and_checks_its_input(lite0, photos):
    assert not lite0.encoder.training
    before = {name: tensor.clone() for name, tensor in lite0.encoder.state_dict().items()}
    lite0.encode(photos)
    assert all(torch.equal(tensor, before[name]) for name, tensor in lite0.encoder.state_dict().items())
    with pytest.raises(InputError, match=rf"{SIDE}×{SIDE} pixels"):
        lite0.encoder(torch.rand(1, 3, 224, 224))


def test_default_size_is_that_of_the_weights():
    assert coulomb.load("lite0").encoder.image_size == 224
    assert repr(coulomb.load("lite0")) == "ImageEncoder('lite0')"


def test_only_a_run_has_a_classifier(lite0, photos):
    with pytest.raises(InputError, match=r"'lite0': has no classifier.*--method supcon --encoder lite0"):
        lite0.classify(photos)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lite", "neither a run folder nor an encoder.*did you mean 'lite0'"),
        ("Lite0", "did you mean 'lite0'"),
        ("nowhere/run", "'nowhere/run': neither"),
        ("run:nowhere", "nowhere"),
        ("resnet18", "'resnet18': has random weights; give a run folder, lite0, hf:NAME@weights or timm:NAME@weights$"),
        ("lite0-random", "has random weights"),
        ("hf:resnet", "has random weights; give hf:resnet@weights$"),
        ("timm:resnet18", "has random weights; give timm:resnet18@weights$"),
        ("mine.py:Net", "neither"),
    ],
)
def test_names_without_weights_are_refused(name, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        coulomb.load(name)
    with pytest.raises(InputError, match=words):
        coulomb.evaluate(name, on="digits")


def test_an_existing_folder_takes_precedence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_path("lite0") is None
    (tmp_path / "lite0").mkdir()
    with pytest.raises(InputError, match="'lite0': no trained encoder in it"):
        coulomb.load("lite0")
    save_encoder(build_encoder("convnet", channels=3, image_size=16, width=4), "lite0")
    for name in ("lite0", "run:lite0", tmp_path / "lite0"):
        loaded = coulomb.load(name)
        assert isinstance(loaded, Run) and loaded.encoder.name == "convnet"
    with pytest.raises(InputError, match="image_size=32: .*leave it out"):
        coulomb.load("lite0", image_size=32)


def test_a_folder_of_transformers_is_an_encoder_and_an_empty_one_is_a_run(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text("{}")
    (tmp_path / "both").mkdir()
    for name in ("config.json", "encoder.json"):
        (tmp_path / "both" / name).write_text("{}")
    assert run_path(tmp_path / "hf") is None and run_path(tmp_path / "both") == tmp_path / "both"
    assert run_path(tmp_path) == tmp_path


def test_saved_weights_keep_their_own_preparation_outside_a_run(lite0, photos, tmp_path):
    """A folder with an encoder alone has no canvas of a run."""
    save_encoder(lite0._encoder, tmp_path / "saved")
    close(coulomb.load(tmp_path / "saved").encode(photos), lite0.encode(photos))


def test_weights_are_required_by_name():
    require_weights("lite0")
    assert isinstance(coulomb.load("lite0", image_size=32), ImageEncoder)
    with pytest.raises(InputError, match="module=Identity: belongs to a run"):
        coulomb.load("lite0", torch.nn.Identity())


def save_transformers_model(folder):
    """A tiny ConvNeXT of random weights with its image processor: input 28, of photos with the short side 32."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)
    transformers.ConvNextModel(config).save_pretrained(folder)
    transformers.ConvNextImageProcessorPil(size={"shortest_edge": 28}, crop_pct=0.875).save_pretrained(folder)
    return transformers


def test_embed_equals_the_processor_and_model_of_transformers(photos, tmp_path):
    transformers = save_transformers_model(tmp_path / "model")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "model", backend="pil")
    model = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    images = [Image.open(path).convert("RGB") for path in sorted(photos.iterdir())]
    with torch.no_grad():
        wanted = torch.cat([model(**processor(images=image, return_tensors="pt")).pooler_output for image in images])
    for number, name in enumerate((f"hf:{tmp_path}/model@weights", str(tmp_path / "model"))):
        out = tmp_path / f"{number}.parquet"
        assert coulomb.load(name).encoder.image_size == 28
        coulomb.load(name).embed(photos, out, workers=number, progress=False)
        found = torch.tensor(pq.read_table(out)["features"].to_pylist())
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


def test_the_file_of_a_run_is_the_run(tmp_path):
    save_encoder(build_encoder("convnet", channels=1, image_size=16, width=4), tmp_path)
    for name in (tmp_path / "encoder.safetensors", f"run:{tmp_path}"):
        loaded = coulomb.load(name)
        assert isinstance(loaded, Run) and loaded.encoder.channels == 1


def test_a_run_from_weights_prepares_images_as_its_evaluation_did(photos, tmp_path):
    """Through its canvas, although its weights have their own preprocessing."""
    options = {"epochs": 1, "lr": 0.0, "norm_statistics": "frozen", "batch_size": 4, "workers": 0}
    run = coulomb.train(photos, encoder="lite0", image_size=32, out=tmp_path / "run", **options, **QUIET)
    assert run.encoder.preprocessing is not None and run.canvas is not None
    plan = reopen(run.folder, progress=False)
    prepared = plan.prepared
    trained = contestants(plan.config, run.folder, prepared, plan.views, None)["trained"]
    features, indices = trained.features(prepared.train)
    found = run.encode(photos)
    close(found[indices], features)
    own = coulomb.load("lite0", image_size=32).encode(photos)
    cosine = torch.cosine_similarity(found, own)
    assert 0.6 < cosine.mean() < 0.999 and not torch.allclose(found, own, atol=1e-3)


def test_encode_and_load_have_the_names_of_sentence_transformer(tmp_path):
    encoder = ImageEncoder(build_encoder("convnet", channels=3, image_size=16, width=8), "convnet")
    images = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(3)]
    features = encoder.encode(images, batch_size=2)
    array = encoder.encode(images, batch_size=2, show_progress_bar=False, convert_to_numpy=True)
    assert isinstance(array, np.ndarray) and np.array_equal(array, features.numpy())
    unit = encoder.encode(images, batch_size=2, normalize_embeddings=True)
    torch.testing.assert_close(unit, torch.nn.functional.normalize(features, dim=1))
    save_encoder(encoder.encoder, tmp_path / "run")
    for name in (tmp_path / "run", "lite0"):
        assert next(coulomb.load(name, device="cpu").encoder.parameters()).device.type == "cpu"
        assert next(coulomb.load(name, device="meta").encoder.parameters()).device.type == "meta"  # it is moved
    for wrong in ("gpu", "cuda:99", 3.5):
        with pytest.raises(InputError, match=f"device='{wrong}': cannot be used"):
            coulomb.load("lite0", device=wrong)


def test_similarity_takes_images_and_features():
    encoder = ImageEncoder(build_encoder("convnet", channels=3, image_size=16, width=8), "convnet")
    images = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(3)]
    features = encoder.encode(images, 2, show_progress_bar=True)
    expected = torch.nn.functional.cosine_similarity(features[:, None], features[None], dim=2)
    torch.testing.assert_close(encoder.similarity(images, images), expected)
    torch.testing.assert_close(encoder.similarity(features.numpy(), images[1]), expected[:, 1:2])
    torch.testing.assert_close(encoder.similarity(features[0], features * 7), expected[:1])
    assert encoder.similarity(features * 0, features).abs().max() == 0
    with pytest.raises(InputError, match="a: features have values that are NaN"):
        encoder.similarity(features / 0, features)
