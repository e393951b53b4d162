"""`check` shows the plan that `train` follows: the same configuration, data and number of steps."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image

import coulomb
from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.training.plan import preflight as module
from coulomb.training.plan.preflight import estimate, preflight
from coulomb.training.plan.resolve import resolve

SMALL = {"encoder": "convnet", "encoder_width": 4, "embedding_dim": 4, "workers": 0}


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    figures = {"training_seconds": 0.01, "activation_bytes": 1, "model_bytes": 1, "note": "not timed"}
    monkeypatch.setattr(module, "estimate", lambda plan: figures)


def noise(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """30 images of two sizes in three class folders, two unreadable ones and a copy."""
    root = tmp_path_factory.mktemp("data") / "animals"
    for number in range(30):
        path = root / ["ant", "bee", "cat"][number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(number, 24 + number % 2 * 4, 30, 3)).save(path)
    (root / "ant" / "30.png").write_bytes((root / "ant" / "00.png").read_bytes())
    (root / "bee" / "torn.png").write_bytes(b"torn")
    (root / "cat" / "cut.png").write_bytes((root / "cat" / "02.png").read_bytes()[:500])
    return root


@pytest.fixture(scope="module")
def listed(folder):
    rows = [
        f"{path.relative_to(folder)},{number % 2},kind-{number % 4}"
        for number, path in enumerate(sorted(folder.rglob("[0-9]*.png")))
    ]
    path = folder / "list.csv"
    path.write_text("\n".join(["path,label,breed", *rows]))
    return path


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "data.npz"
    labels = np.where(np.arange(40) % 4 == 0, -1, np.arange(40) % 3)
    np.savez(path, images=noise(1, 40, 16, 16), labels=labels)
    return path


OPTIONS = [
    ("folder", {}),
    ("folder", {"method": "supcon", "image_size": 16, "batch_size": 8}),
    ("folder", {"method": "softmax", "labels": "none"}),
    ("folder", {"test_fraction": 0.4, "seed": 3, "sampler": "class_balanced", "method": "triplet"}),
    ("folder", {"long_tail": "step:4", "method": "paco", "channels": 1}),
    ("folder", {"test": "folder", "epochs": 2}),
    ("folder", {"cache_gb": 0.0, "max_corrupt": 0.2}),
    ("folder", {"max_corrupt": 0.0}),
    ("folder", {"batch_size": 28}),
    ("listed", {"labels": "breed", "method": "supcon"}),
    ("listed", {"group": "breed", "batch_size": 4}),
    ("listed", {"group": "bread"}),
    ("listed", {"preset": "paper", "batch_size": 8}),
    ("arrays", {"method": "arcface"}),
    ("arrays", {"method": "byol", "accumulate": 2, "method_options": {"momentum": 0.5}}),
    ("digits", {"batch_size": 512}),
    ("digits", {"method_options": {"queue_size": 4}}),
]


@pytest.mark.parametrize(("data", "options"), OPTIONS, ids=[f"{name}-{options}" for name, options in OPTIONS])
def test_check_shows_what_train_does(data, options, request, tmp_path):
    def path(name):
        return name if name == "digits" else str(request.getfixturevalue(name))

    options = {"epochs": 1, "max_corrupt": 0.1} | SMALL | options | {"data": path(data)}
    if "test" in options:
        options["test"] = path(options["test"])
    result, text = preflight(options, progress=False)
    refused = result["training"]["refused"]
    try:
        run = coulomb.train(**options, out=tmp_path / "run", evaluate=False, progress=False)
    except InputError as error:
        assert refused == str(error) and refused in text
        return
    assert refused is None
    recorded = yaml.safe_load((run.path / "config.yaml").read_text())
    assert result["config"] == {name: value for name, value in recorded.items() if name != "out"}
    assert result["data"] == json.loads((run.path / "data.json").read_text())
    split = json.loads((run.path / "split.json").read_text())
    assert (result["data"]["train"], result["data"]["test"]) == (len(split["train"]), len(split["test"]))
    trained = [line for line in run.metrics if "loss" in line]
    assert result["training"]["updates"] == len(trained) == max(line["step"] for line in trained)
    assert result["training"]["image_size"] == run.encoder.image_size
    steps = f"{result['training']['steps']} steps of {recorded['batch_size']} images"
    assert steps in text and steps.removesuffix(" images") in (run.path / "train.log").read_text()


def test_both_outcomes_are_among_the_cases(folder):
    """Without both outcomes, the test above could pass without comparing anything."""
    assert (
        preflight({"data": str(folder), **SMALL, "max_corrupt": 0.1}, progress=False)[0]["training"]["refused"] is None
    )
    assert (
        "max_corrupt"
        in preflight({"data": str(folder), **SMALL, "max_corrupt": 0.0}, progress=False)[0]["training"]["refused"]
    )


@pytest.mark.slow
def test_the_probability_of_a_positive_is_reported_only_for_methods_that_need_one(folder):
    def labels(method):
        return preflight({"data": str(folder), "method": method, "max_corrupt": 0.1, **SMALL}, progress=False)[0][
            "labels"
        ]

    assert labels("supcon")["p_no_positive"] is not None and labels("triplet")["batch_size"] == 6
    for method in ("simclr", "moco", "softmax", "paco"):
        assert "p_no_positive" not in labels(method)


def test_small_data_is_planned_with_at_least_one_step(tmp_path):
    for number in range(10):
        Image.fromarray(noise(number, 20, 20, 3)).save(tmp_path / f"{number}.png")
    result, text = preflight({"data": str(tmp_path)}, progress=False)
    assert result["training"]["steps"] == result["config"]["epochs"] * (8 // 2) > 0
    assert "about 1 s of training" in text


def test_the_suggested_size_is_that_of_train(tmp_path):
    Image.fromarray(noise(0, 130, 150, 3)).save(tmp_path / "a.png")
    Image.fromarray(noise(1, 128, 128, 3)).save(tmp_path / "b.png")
    for number in range(4):
        Image.fromarray(noise(2 + number, 200, 140, 3)).save(tmp_path / f"{number}.png")
    for options, size in (({"from_scratch": True}, 96), ({"preset": "paper"}, 128), ({}, 128)):
        result, _ = preflight({"data": str(tmp_path), "batch_size": 2} | options, progress=False)
        assert result["suggested"]["image_size"] == result["config"]["image_size"] == size


def test_copies_of_training_images_among_the_held_out_ones_are_counted(folder):
    result, _ = preflight({"data": str(folder), "test": str(folder), "max_corrupt": 0.1, **SMALL}, progress=False)
    assert result["duplicates"]["held_out"] == 31
    assert any("31 of 31 held-out images are exact copies" in said for said in result["findings"])


def test_a_group_is_recommended_unless_the_split_is_given(tmp_path):
    images, houses = noise(3, 40, 16, 16), np.arange(40) // 4
    np.savez(tmp_path / "data.npz", images=images, house=houses)
    data = {"data": str(tmp_path / "data.npz"), **SMALL}

    def finding(**options):
        found, text = preflight(data | options, progress=False)
        assert len(found["groups"]) == ("--group house" in " ".join(found["findings"])) == ("--group house" in text)
        return bool(found["groups"])

    assert finding()
    assert not finding(group="house") and not finding(test=data["data"])


def test_the_test_set_is_checked(folder, tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        Image.fromarray(noise(50, 20, 20, 3)).save(tmp_path / name / "a.png")
    (tmp_path / "bee" / "torn.png").write_bytes(b"torn")
    options = {"data": str(folder), "test": str(tmp_path), "max_corrupt": 0.5, **SMALL}
    result, text = preflight(options, progress=False)
    assert result["test"]["corrupt"][0]["id"] == "bee/torn.png" and "bee/torn.png" in text
    assert (result["test"]["count"], result["data"]["test"]) == (3, 2)


def test_an_encoder_given_as_a_module(folder):
    import torch

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    options = {"data": str(folder), "max_corrupt": 0.1, "workers": 0}
    result, _ = preflight(options | {"encoder": net}, progress=False)
    assert result["training"]["encoder"] == "custom:Sequential"


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"image_sise": 3}, {"data": "nowhere"}])
def test_data_that_cannot_be_read_are_refused(folder, options):
    with pytest.raises(InputError):
        preflight({"data": str(folder)} | options, progress=False)


@pytest.mark.parametrize("part", ["resolve", "estimate"])
def test_data_that_are_gone_are_no_refusal_of_train(folder, monkeypatch, part):
    def gone(*args, **named):
        raise DataUnavailableError("the server is gone")

    monkeypatch.setattr(module, part, gone)
    with pytest.raises(DataUnavailableError, match="the server is gone"):
        preflight({"data": str(folder), "max_corrupt": 0.1} | SMALL, progress=False)


def test_an_option_that_the_method_refuses_is_shown(folder, monkeypatch):
    monkeypatch.undo()  # the method is made when it is timed
    options = {"data": str(folder), "method": "debiased", "method_options": {"tau_plus": 2.0}, "max_corrupt": 0.1}
    assert "tau_plus" in preflight(options | SMALL, progress=False)[0]["training"]["refused"]


@pytest.mark.slow
def test_micro_batches_need_less_memory_and_more_time():
    options = {"data": "digits", "encoder": "resnet10", "encoder_width": 8, "batch_size": 512, "precision": "32"}
    whole, micro, wide = (estimate(resolve(options | {"micro_batch": size})) for size in (None, 32, 1024))
    assert micro["activation_bytes"] < 0.2 * whole["activation_bytes"]
    assert wide["activation_bytes"] == whole["activation_bytes"]
    assert micro["parameters"] == whole["parameters"] and micro["model_bytes"] == whole["model_bytes"]
    assert micro["seconds_per_step"] > 0


@pytest.mark.slow
def test_an_estimate_scales_with_the_run():
    planned = resolve({"data": "digits", "epochs": 10})
    config = planned.config
    found = estimate(planned)
    assert planned.steps == 10 * (1438 // config.batch_size)
    assert found["training_seconds"] == found["seconds_per_step"] * planned.steps > 0
    assert found["model_bytes"] == 16 * found["parameters"]  # weights, gradients, two moments, in float32
    views = 2 * config.batch_size * 16 * 16 * 4
    assert found["activation_bytes"] > 32 * views  # the first convolution alone keeps 32 maps a view
