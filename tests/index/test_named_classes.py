"""Classes from words: names, prompts, probabilities, and `coulomb classify INDEX --names`."""

import json

import numpy as np
import pytest
import torch

import coulomb
import forked
from coulomb.ground.errors import InputError
from coulomb.index.named_classes import check_prompts, classify_by_words, read_names, texts_of
from index_cases import folder, tiny
from tower_cases import tiny_run


def test_names_have_words_of_their_own():
    names = read_names("cat, dog,neither = an empty room")
    assert names == {"cat": None, "dog": None, "neither": "an empty room"}
    assert names == read_names(["cat", "dog", "neither=an empty room"]) == read_names(names)
    assert texts_of(names, ["a {}", "the {}"]) == ["a cat", "the cat", "a dog", "the dog"] + 2 * ["an empty room"]


@pytest.mark.parametrize("names", ["", "cat", "cat,", "cat,cat", "cat,dog=", ",", ["cat", 3], {"cat": None, "dog": ""}])
def test_wrong_names_are_one_sentence(names):
    with pytest.raises(InputError, match="names"):
        read_names(names)


@pytest.mark.parametrize("prompts", ["a photo", ["{}", "a photo"], [], [3]])
def test_wrong_prompts_are_one_sentence(prompts):
    with pytest.raises(InputError, match="prompts"):
        check_prompts(prompts)


def test_probabilities_are_the_softmax_of_cosines_over_the_temperature():
    draw = np.random.default_rng(0)
    x, classes = draw.normal(size=(50, 6)).astype(np.float32), draw.normal(size=(3, 6))
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    found = classify_by_words(x, torch.from_numpy(classes).float(), 0.2)
    unit = x.astype(float) / np.linalg.norm(x, axis=1, keepdims=True)
    weights = np.exp(unit @ classes.T / 0.2)
    np.testing.assert_allclose(found.probabilities, weights / weights.sum(1, keepdims=True), atol=1e-6)
    assert found.accuracy is None and found.unsure.any() and not found.unsure.all()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("named")
    run = tiny_run(root / "run")
    return str(
        coulomb.Index.build(folder(root / "photos"), root / "words.index", encoder=str(run), progress=False).path
    )


def test_an_index_is_classified_by_words(built, tmp_path):
    index = coulomb.Index.open(built)
    answer = index.classify(names="cat,dog,neither=something else", prompts=["a {}", "a photo of the {}"])
    run = coulomb.load(index.info["encoder"]["name"])
    texts = ["a cat", "a photo of the cat", "a dog", "a photo of the dog", "something else"]
    words = torch.nn.functional.normalize(run.encode(texts), dim=1)
    classes = torch.stack([words[:2].mean(0), words[2:4].mean(0), words[4]])
    expected = torch.softmax(run.similarity(index.features.astype(np.float32), classes) / 0.1, 1).numpy()
    assert (
        answer["classes"] == ["cat", "dog", "neither"] and answer["temperature"] == 0.1 and len(answer["images"]) == 10
    )
    for image in answer["images"]:
        found = list(image["probabilities"].values())
        np.testing.assert_allclose(found, expected[index.position(image["id"])], atol=1e-3)
        assert image["label"] == answer["classes"][np.argmax(found)]
    done = forked.coulomb("classify", built, "--names", "cat,dog", "--json", "--out", "list.csv", cwd=tmp_path)
    assert json.loads(done.stdout) == index.classify(names=["cat", "dog"])["images"], done.stderr
    assert "words of 2 classes ('a photo of a {}')" in done.stderr
    assert (tmp_path / "list.csv").read_text().splitlines()[0].endswith("p(cat),p(dog)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": "cat"}, "names='cat'"),
        ({"names": "cat,dog", "labels": {"a/00.png": "x"}}, "labels="),
        ({"names": "cat,dog", "accuracy": 0.9}, "accuracy=0.9"),
        ({"names": "cat,dog", "prompts": "a photo"}, "prompts='a photo'"),
        ({"prompts": "{}"}, "prompts"),
    ],
)
def test_wrong_options_are_named(built, options, message):
    with pytest.raises(InputError, match=message):
        coulomb.Index.open(built).classify(**options)


def test_words_need_a_run_on_words_and_a_temperature(tmp_path):
    images = coulomb.Index.build(folder(tmp_path / "photos"), tmp_path / "images.index", encoder=tiny(), progress=False)
    with pytest.raises(InputError, match="captions"):
        coulomb.Index(images.path, encoder=tiny()).classify(names="cat,dog")
    run = tiny_run(tmp_path / "run", temperature=None)
    index = coulomb.Index.build(tmp_path / "photos", tmp_path / "words.index", encoder=str(run), progress=False)
    with pytest.raises(InputError, match="temperature=None"):
        index.classify(names="cat,dog")
    for line in (["--names", "cat,dog"], ["--prompts", "{}"]):
        done = forked.coulomb("classify", str(run), "x.png", *line, cwd=tmp_path)
        assert done.returncode == 2 and "is not an index" in done.stderr
