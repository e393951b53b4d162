"""A run on pictures and texts on labeled images: zero-shot accuracy beside kNN and linear probe."""

import json
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import coulomb
from coulomb.evaluation.assess_zero_shot import assess_zero_shot
from coulomb.ground.errors import InputError
from coulomb.report.tables import evaluation_table
from coulomb.training.record.folder import RunFolder
from tower_cases import tiny_run

COLORS = {"red_square": (220, 30, 30), "green_square": (30, 200, 40), "blue_square": (30, 60, 230)}


def photos(root, per_class=10):
    """A folder of noisy squares per color."""
    draw = np.random.default_rng(0)
    for name, color in COLORS.items():
        (root / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = np.clip(np.array(color) + draw.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("zero") / "run")


def test_figures_are_those_of_the_nearest_words(run, tmp_path):
    train, test = photos(tmp_path / "train"), photos(tmp_path / "test", 4)
    (tmp_path / "train" / "red_square" / "broken.png").write_bytes(b"no picture")
    found = assess_zero_shot(RunFolder(run), str(train), str(test), prompts=["a {}", "the {}"], progress=False)
    opened = coulomb.load(str(run))
    names = sorted(COLORS)
    texts = [text.format(name.replace("_", " ")) for name in names for text in ("a {}", "the {}")]
    words = torch.nn.functional.normalize(opened.encode(texts), dim=1).view(3, 2, -1).mean(1)
    paths = [str(path) for name in names for path in sorted((test / name).iterdir())]
    cosines = opened.similarity(opened.encode(paths), words).numpy()
    right = cosines.argmax(1) == np.repeat(np.arange(3), 4)
    zero = found["zero_shot"]
    assert zero["top"] == {"1": pytest.approx(right.mean()), "5": 1.0} and zero["classes"] == names
    assert zero["chance"]["top"]["1"] == pytest.approx(1 / 3) and np.sum(zero["confusion"]) == 12
    assert zero["protocol"]["prompts"] == ["a {}", "the {}"]
    assert found["trained"]["knn"] is not None and found["trained"]["linear"] is not None
    assert [each["id"] for each in found["failed"]] == ["red_square/broken.png"]
    assert json.loads((run / "transfer" / "train.json").read_text()) == json.loads(json.dumps(found))
    text = evaluation_table(found)
    assert (
        "zero-shot" in text
        and "chance" in text
        and "33.3%" in text
        and "'a {}', 'the {}'" in text
        and "top-5" not in text
    )


def test_a_split_and_the_usual_prompt(run, tmp_path):
    found = assess_zero_shot(RunFolder(run), str(photos(tmp_path / "photos")), progress=False)
    assert found["zero_shot"]["protocol"]["prompts"] == ["a photo of a {}"]
    assert found["zero_shot"]["protocol"]["test"] == 6


def test_a_run_without_texts_is_measured_by_its_tower_alone(tmp_path):
    run, data = tiny_run(tmp_path, texts=False), str(photos(tmp_path / "photos"))
    found = assess_zero_shot(RunFolder(run), data, progress=False)
    assert "zero_shot" not in found and found["trained"]["knn"] is not None
    with pytest.raises(InputError, match="prompts"):
        assess_zero_shot(RunFolder(run), data, prompts="a {}", progress=False)


def test_wrong_arguments_are_one_sentence(run, tmp_path):
    data = str(photos(tmp_path / "photos", 4))
    for options, message in (
        ({"on": data, "prompts": "a photo"}, "prompts='a photo'"),
        ({"prompts": "a {}"}, "prompts"),
        ({"on": str(tmp_path / "photos" / "red_square")}, "no labels"),
        (
            {"on": torch.utils.data.TensorDataset(torch.zeros(8, 3, 16, 16), torch.tensor([0, 1] * 4))},
            "numbers and no names",
        ),
        ({"on": data, "full": True}, "full"),
        ({"on": data, "encoder": "own.py:Net"}, "encoder"),
        ({"on": data, "many": 3}, "many=3"),
    ):
        with pytest.raises(InputError, match=message), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            coulomb.evaluate(str(run), progress=False, **options)
    with pytest.raises(InputError, match="prompts"):
        coulomb.evaluate("lite0", on=data, prompts="a {}", progress=False)
