import dataclasses

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, open_source, stratified_split
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import measure, open_data
from coulomb.training.plan.plan import prepare


def pictures(count, height=16, width=16):
    return np.random.default_rng(count).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def prepared(config, data, test=None):
    sources = open_data(config, data, test)
    return prepare(config, sources, measure(config, *sources), progress=False)


def test_the_split_follows_the_labels():
    labels = np.repeat([0, 1], [40, 10])
    found = prepared(Config(test_fraction=0.2), (pictures(50), labels))
    assert np.bincount(found.test.own_labels).tolist() == [8, 2]
    assert found.describe([])["class_counts"] in (None, [32, 8])
    assert not set(found.train.indices) & set(found.test.indices)


def test_a_long_tail_subsamples_only_the_training_images(caplog):
    labels = np.repeat([0, 1], 50)
    caplog.set_level("INFO")
    found = prepared(Config(test_fraction=0.2, long_tail="step:10", sampler="class_balanced"), (pictures(100), labels))
    assert np.bincount(found.train.own_labels).tolist() == [40, 4]
    assert np.bincount(found.test.own_labels).tolist() == [10, 10]
    described = found.describe([])
    assert (described["long_tail"], described["imbalance"], described["class_counts"]) == ("step:10", 10, [40, 4])
    assert "44 of 80 training images kept" in described["split"]
    assert "long tail step:10: 44 training images, imbalance 10: 0 40, 1 4" in caplog.text
    assert "each of the 4 images of 1 is drawn 5.5 times per epoch" in caplog.text


def test_a_group_is_on_one_side_of_the_split_and_the_long_tail_comes_after():
    houses = np.arange(100) // 5
    source = ArraySource(pictures(100), np.arange(100) % 2, columns=lambda: {"house": houses.tolist()})
    for options, kept in (({}, 80), ({"long_tail": "step:4", "sampler": "square_root"}, 50)):
        found = prepared(Config(group="house", test_fraction=0.2, **options), source)
        assert not set(houses[found.train.indices]) & set(houses[found.test.indices])
        assert (len(found.train.indices), len(found.test.indices)) == (kept, 20)
        assert np.bincount(found.test.own_labels).tolist() == [10, 10]
        assert "4 of 20 groups; no house is in both." in found.describe([])["split"]
    with pytest.raises(InputError, match="group='hous': .* did you mean 'house'"):
        prepared(Config(group="hous"), source)


def test_groups_of_a_test_set_must_differ_from_those_of_the_data():
    def source(first):
        return ArraySource(pictures(10), columns=lambda: {"house": [first + number // 2 for number in range(10)]})

    assert "; no house is in both" in prepared(Config(group="house"), source(1), source(6)).split
    with pytest.raises(InputError, match="group='house': 1 groups are in both"):
        prepared(Config(group="house"), source(1), source(5))


def test_options_that_need_labels_are_refused_without_them():
    for options, said in (({"long_tail": "step:10"}, "long_tail="), ({"sampler": "square_root"}, "sampler=")):
        with pytest.raises(InputError, match=said):
            prepared(Config(**options), pictures(30))


def test_a_test_set_is_matched_by_class_name():
    train = ArraySource(pictures(6), np.array([0, 1, 2] * 2), class_names=["ant", "bee", "cat"])
    test = ArraySource(pictures(4), np.array([0, 1, 1, -1]), class_names=["bee", "cat"])
    assert prepared(Config(), train, test).test.own_labels.tolist() == [1, 2, 2, -1]
    strange = ArraySource(pictures(2), np.array([0, 0]), class_names=["dog"])
    with pytest.raises(InputError, match="dog"):
        prepared(Config(), train, strange)


def test_one_image_is_too_few():
    with pytest.raises(InputError, match="1 image; contrastive learning needs at least 2"):
        open_data(Config(), pictures(1))


def test_options_override_the_survey():
    source = open_source("digits")
    assert (measure(Config(), source).image_size, measure(Config(), source).channels) == (16, 1)
    asked = dataclasses.replace(Config(), image_size=24, channels=3)
    assert (measure(asked, source).image_size, measure(asked, source).channels) == (24, 3)


def test_recipes_depend_on_the_number_of_training_images():
    source = ArraySource(pictures(100), np.arange(100) % 2)
    assert measure(Config(test_fraction=0.2), source).images == 80
    assert measure(Config(), source, source).images == 100  # the user's own held-out part
    assert measure(Config(long_tail="step:10"), source, source).images == 55


def test_headers_are_read_once_and_the_split_is_computed_once(monkeypatch):
    source = ArraySource(pictures(30))
    read = []
    header = source.header
    monkeypatch.setattr(source, "header", lambda index: read.append(index) or header(index))
    splits = []
    monkeypatch.setattr(
        "coulomb.training.plan.facts.stratified_split", lambda *a, **k: splits.append(a) or stratified_split(*a, **k)
    )
    prepared(Config(), source)
    assert sorted(read) == list(range(30))
    assert len(splits) == 1
