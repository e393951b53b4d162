import dataclasses

import pytest

from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import PRESETS
from coulomb.methods import METHODS
from coulomb.methods.options import complete_options
from coulomb.models.backbones import BACKBONES
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.recipes import RECIPES, find_recipe
from coulomb.training.plan.resolve import resolve

KINDS = {
    "digits": Facts(1797, 16, 1, 1797, digits=True, fast_bf16=True, survey=None, split=None),
    "small photos": Facts(50_000, 32, 3, 50_000, digits=False, fast_bf16=True, survey=None, split=None),
    "photos": Facts(900, 96, 3, 0, digits=False, fast_bf16=False, survey=None, split=None),
    "microscopy": Facts(12, 96, 1, 0, digits=False, fast_bf16=False, survey=None, split=None),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_is_complete(method, preset, kind):
    config = find_recipe(method, preset)(KINDS[kind])
    assert (config.method, config.preset) == (method, preset)
    assert config.encoder in BACKBONES and config.views in PRESETS
    assert None not in (config.image_size, config.channels, config.knn_every)
    complete_options(config.method, METHODS[config.method], config.method_options)


def test_every_method_has_the_published_settings():
    assert {method for method, preset in RECIPES if preset == "paper"} == set(METHODS)
    assert {method for method, preset in RECIPES if preset == "small"} < set(METHODS)


def test_own_classes_have_the_small_recipe(tmp_path):
    config = find_recipe("mine.py:Mine", "small")(KINDS["digits"])
    assert (config.method, config.encoder, config.epochs) == ("mine.py:Mine", "convnet", 100)
    with pytest.raises(InputError, match="preset='paper'"):
        find_recipe("mine.py:Mine", "paper")


def test_small_follows_the_images():
    digits, photos = (find_recipe("simclr", "small")(KINDS[kind]) for kind in ("digits", "small photos"))
    assert (digits.encoder, digits.views, digits.knn_k) == ("convnet", "digits", 20)
    assert (photos.encoder, photos.views, photos.knn_k) == ("convnet-pool", "small-natural", 200)
    assert (photos.encoder_width, photos.view_options, photos.batch_size) == (48, {"side": 0.625}, 512)
    assert (photos.optimizer, photos.whitening) == ("muon", 0.5) and (digits.optimizer, digits.whitening) == (
        "adamw",
        0,
    )
    moco = find_recipe("moco", "small")(KINDS["small photos"])
    assert (moco.encoder, moco.optimizer, moco.whitening) == ("convnet", "sgd", 0)
    assert find_recipe("simclr", "small")(KINDS["photos"]).encoder == "resnet10"
    assert find_recipe("simclr", "small")(KINDS["microscopy"]).batch_size <= 12 // 2


def test_few_images_have_more_epochs():
    epochs = {kind: find_recipe("simclr", "small")(facts).epochs for kind, facts in KINDS.items()}
    assert epochs == {"digits": 100, "small photos": 36, "photos": 200, "microscopy": 200}
    many = dataclasses.replace(KINDS["digits"], images=60_000)
    assert find_recipe("simclr", "small")(many).epochs == 33


def test_bf16_only_where_it_is_fast():
    assert find_recipe("simclr", "small")(KINDS["small photos"]).precision == "bf16"
    assert find_recipe("simclr", "small")(KINDS["photos"]).precision == "32"


def test_the_papers_numbers():
    cifar = find_recipe("simclr", "paper")(KINDS["small photos"])
    assert (cifar.optimizer, cifar.lr, cifar.weight_decay, cifar.temperature) == ("lars", 1.0, 1e-4, 0.5)
    supcon = find_recipe("supcon", "paper")(KINDS["small photos"])
    assert (supcon.optimizer, supcon.lr, supcon.batch_size, supcon.temperature) == ("sgd", 0.5, 1024, 0.1)
    paco = find_recipe("paco", "paper")(KINDS["small photos"])
    assert (paco.lr, paco.temperature, paco.embedding_dim, paco.lr_drops) == (0.05, 0.05, 32, [0.8, 0.9])
    assert paco.method_options == {"alpha": 0.01, "queue_size": 1024}
    arcface = find_recipe("arcface", "paper")(KINDS["photos"])
    assert (arcface.embedding_dim, arcface.schedule, arcface.batch_size) == (512, "step", 512)


def test_an_option_that_the_method_does_not_have_is_reported_as_unused(caplog):
    resolve({"data": "digits", "method": "siglip", "temperature": 0.1})
    assert [record.message for record in caplog.records] == ["temperature: not used, because siglip has no such option"]
    caplog.clear()
    resolve({"data": "digits", "method": "simclr", "temperature": 0.1})
    assert not caplog.records
