import dataclasses

import pytest

from coulomb.kinds.image.views import PRESETS, ViewSpec
from coulomb.methods import METHODS
from coulomb.methods.options import complete_options
from coulomb.models.tuning import Tune
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.recipes import find_recipe
from coulomb.training.plan.recipes_from_weights import BY_METHOD, SHARED, from_weights
from coulomb.training.plan.start import Start, shown_in_time

START = Start("lite0", 128, 3, "")
PHOTOS = Facts(1700, 128, 3, 0, digits=False, fast_bf16=True, survey=None, split=None, start=START)


@pytest.mark.parametrize("images", [12, 1700, 200_000])
@pytest.mark.parametrize("method", [*METHODS, "mine.py:Mine"])
def test_a_recipe_from_weights_is_complete(method, images):
    config = from_weights(method, dataclasses.replace(PHOTOS, images=images))
    assert (config.method, config.preset, config.encoder, config.encoder_width) == (method, "small", "lite0", None)
    assert config.views in PRESETS and ViewSpec.from_config(config.view_options)
    assert 1e-4 <= config.lr <= 1e-3 and config.optimizer == "adamw"
    assert Tune.parse(config.tune) and 0 < config.layer_decay <= 1
    assert 2 <= config.epochs <= 30 and 0 < config.warmup_epochs < config.epochs and config.knn_every >= 1
    assert 2 <= config.batch_size <= max(2, images // 4)
    assert None not in (config.image_size, config.channels)
    if method in METHODS:
        complete_options(method, METHODS[method], config.method_options)
        assert config.temperature == BY_METHOD[method].get("temperature", SHARED["temperature"])


def test_the_network_is_frozen_unless_the_method_learns_from_labels():
    for name, method in METHODS.items():
        assert from_weights(name, PHOTOS).tune == ("all" if method.needs_labels else "none")
    assert from_weights("mine.py:Mine", PHOTOS).tune == "none"


def test_the_table_names_every_method():
    assert set(BY_METHOD) == set(METHODS)


def test_epochs_fill_the_time():
    assert from_weights("simclr", PHOTOS).epochs == round(shown_in_time(128) / 1700) == 15
    many = dataclasses.replace(PHOTOS, images=100_000)
    assert from_weights("simclr", many).epochs == 2
    assert from_weights("simclr", dataclasses.replace(PHOTOS, images=100)).epochs == 30
    assert [from_weights("simclr", facts).cached_views for facts in (PHOTOS, many)] == [8, 2]


def test_batches_of_larger_images_are_smaller():
    sizes = {48: 128, 96: 128, 128: 72, 160: 40, 224: 16, 384: 16}
    for side, batch in sizes.items():
        assert from_weights("simclr", dataclasses.replace(PHOTOS, image_size=side)).batch_size == batch


def test_a_queue_has_no_key_of_the_epoch_before():
    for method in ("moco", "paco"):
        assert from_weights(method, PHOTOS).method_options["queue_size"] == 850
        assert find_recipe(method, "small")(PHOTOS).method_options["queue_size"] > 850
    assert from_weights("moco", dataclasses.replace(PHOTOS, images=10**6)).method_options["queue_size"] == 4096


def test_arithmetic_and_views_follow_encoder_and_images():
    assert from_weights("simclr", PHOTOS).precision == "32"  # bf16 is slower for lite0
    other = dataclasses.replace(PHOTOS, start=Start("hf:some/model@weights", 224, 3, ""))
    assert from_weights("simclr", other).precision == "bf16"
    digits = from_weights("simclr", dataclasses.replace(PHOTOS, digits=True))
    assert (digits.views, digits.view_options) == ("digits", {})
    gray = from_weights("simclr", dataclasses.replace(PHOTOS, channels=1))
    assert (gray.views, gray.view_options) == ("single-channel", {"crop_area": [0.4, 1.0]})
