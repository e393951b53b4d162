"""Figures of the doctor on hand-made images: the linear matcher, transplants, kNN against chance."""

import numpy as np
import pytest
import torch

from coulomb.evaluation.examine_network import MATCHER_LEAST, label_figures, matcher_separation, transplants
from coulomb.kinds.image.views import OwnViews, make_views
from coulomb.tables import open_source
from coulomb.tables.sources.arrays import open_digits
from coulomb.training.network import make_encoder
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import measure
from coulomb.training.plan.plan import Part, prepare


def prepared(images, labels, **options):
    config = Config(data="arrays", workers=0, encoder="convnet", encoder_width=4, **options)
    source = open_source((images, labels))
    return config, prepare(config, (source, None), measure(config, source), progress=False)


@pytest.fixture(scope="module")
def digits():
    source = open_digits()
    return prepared(source.array, source.labels)


def separation_of(made, views):
    config, data = made
    return matcher_separation(data.train, data.test, views, config.seed, data.facts.image_size)


def test_matcher_distinguishes_usual_views_from_noise(digits):
    size = digits[1].facts.image_size
    usual = separation_of(digits, make_views("digits", size, 1))
    drowned = separation_of(digits, make_views("digits", size, 1, noise_std=(3.0, 5.0)))
    assert usual > 0.75
    assert drowned < 0.6


def test_matcher_on_identical_and_blank_views(digits):
    size = digits[1].facts.image_size
    assert separation_of(digits, OwnViews(lambda images, generator: images, size, 1)) == pytest.approx(1, abs=1e-3)
    blank = OwnViews(lambda images, generator: torch.zeros_like(images), size, 1)
    assert separation_of(digits, blank) == pytest.approx(0.5, abs=1e-6)


def test_matcher_needs_enough_images(digits):
    data = digits[1]
    few = Part(data.train.images, data.train.indices[: MATCHER_LEAST - 1], None)
    views = make_views("digits", data.facts.image_size, 1)
    assert matcher_separation(few, data.test, views, 0, data.facts.image_size) is None


@pytest.mark.parametrize(
    ("region", "rows", "columns"),
    [
        ("top", slice(0, 4), slice(None)),
        ("bottom", slice(-4, None), slice(None)),
        ("left", slice(None), slice(0, 4)),
        ("right", slice(None), slice(-4, None)),
    ],
)
def test_transplants_detect_an_embedding_of_one_strip(region, rows, columns):
    images = torch.rand(20, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    assert transplants(images, lambda x: x[:, :, rows, columns].flatten(1) - 0.5) == {"region": region, "share": 1.0}


def test_transplants_of_an_embedding_of_the_whole_image():
    images = torch.rand(20, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    assert transplants(images, lambda x: x.flatten(1) - 0.5)["share"] == 0


def test_shuffled_labels_are_at_chance(digits):
    source = open_digits()
    config, shuffled = prepared(source.array, np.random.default_rng(0).permutation(source.labels), knn_k=20)
    views = make_views("digits", shuffled.facts.image_size, 1)
    encoder = make_encoder(config, shuffled, None)
    found = label_figures(encoder, shuffled, views, config)
    assert found["chance"] == pytest.approx(0.1, abs=0.03)
    assert found["images"] == len(shuffled.test.indices)
    assert found["pixels"] < 0.17
    real = label_figures(encoder, digits[1], views, config)
    assert real["pixels"] > 0.9
