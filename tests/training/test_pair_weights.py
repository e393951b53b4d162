"""Runs on columns that begin from both towers of CLIP or SigLIP."""

import json

import numpy as np
import pytest
import torch

import coulomb
from coulomb.ground.errors import InputError
from coulomb.models import build_pair
from coulomb.training.plan.resolve import resolve_run

pytest.importorskip("transformers")

from captioned_squares import squares
from pair_folders import saved_pair

PHRASES = ["a red flower", "its leaf", "a cat", "sofa and cat", "red sofa", "flower and leaf"]


def data():
    made = squares(2)
    made["caption"] = [f"{PHRASES[row % 6]} {PHRASES[(row // 6) % 6]} {'and ' * (row % 3)}cat" for row in range(32)]
    return made


OPTIONS = {
    "columns": "image,caption",
    "batch_size": 8,
    "epochs": 2,
    "knn_every": 1,
    "precision": "32",
    "workers": 0,
    "cached_views": 2,
    "progress": False,
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    saved_pair(path, "clip")
    return path


def test_frozen_towers_keep_their_space_and_begin_from_its_temperature(folder, tmp_path):
    run = coulomb.train(data(), out=str(tmp_path / "run"), encoder=str(folder), group="caption", **OPTIONS)
    config = run.config
    assert (config.method, config.temperature) == ("clip", pytest.approx(np.exp(-3.0)))
    assert config.tune == "image=none,caption=none"
    first = next(line for line in run.metrics if "temperature" in line)
    assert first["temperature"] == pytest.approx(np.exp(-3.0), rel=0.01)
    assert not (run.path / "checkpoints" / "initial" / "linear_map.npz").exists()
    # The untouched towers are a contestant: their cosines are those of the weights.
    pair = build_pair(str(folder))
    start = coulomb.models.load_encoder(run.path / "checkpoints" / "initial" / "caption")
    tokens = pair.text.tokenize(data()["caption"]).stack(range(5))
    with torch.no_grad():
        torch.testing.assert_close(start(tokens), pair.text.eval()(tokens))
        trained = run["caption"].encoder
        backbone = trained.backbone_features(tokens), pair.text.backbone_features(tokens)
        torch.testing.assert_close(*backbone)  # frozen
        assert not torch.allclose(trained(tokens), start(tokens))  # the projection has learned
    assert {"starting_point", "linear_map", "chance"} <= set(run.evaluation)
    assert run.encode(["a cat", "red sofa"]).shape == (2, 24)


def test_untouched_and_trained_are_equal_after_no_training(folder, tmp_path):
    run = coulomb.train(
        data(),
        out=str(tmp_path / "run"),
        encoder=str(folder),
        group="caption",
        **OPTIONS | {"epochs": 0, "knn_every": 0},
    )
    for direction in ("first_to_second", "second_to_first"):
        assert run.evaluation["trained"][direction] == run.evaluation["starting_point"][direction]


def test_towers_learn_as_a_whole_and_resume(folder, tmp_path):
    options = OPTIONS | {"tune": "all", "evaluate": False, "encoder": str(folder), "group": "caption"}
    whole = coulomb.train(data(), out=str(tmp_path / "whole"), **options)
    half = coulomb.train(data(), out=str(tmp_path / "half"), **options | {"checkpoint_every": 2})
    (half.path / "checkpoints" / "last.ckpt").unlink()
    again = coulomb.train(data(), resume_from=str(half.path), evaluate=False, progress=False)
    for name in ("image", "caption"):
        one, other = (each.path / "towers" / name / "encoder.safetensors" for each in (whole, again))
        assert one.read_bytes() == other.read_bytes()


def test_siglip_begins_from_scale_and_bias(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    saved_pair(path, "siglip")
    options = {key: value for key, value in OPTIONS.items() if key != "progress"} | {"data": data(), "group": "caption"}
    plan = resolve_run(options | {"encoder": str(path)})
    assert plan.config.method == "siglip" and not plan.closed_form
    assert plan.config.method_options == {"scale": pytest.approx(np.exp(3.0)), "bias": -7.0}
    given = resolve_run(options | {"encoder": str(path), "method_options": {"bias": -3.0}})
    assert given.config.method_options["bias"] == -3.0
    clip = resolve_run(options | {"encoder": str(path), "method": "clip"})
    assert clip.config.temperature == pytest.approx(np.exp(-3.0))
    run = coulomb.train(
        data(), out=str(tmp_path / "run"), encoder=str(path), group="caption", evaluate=False, **OPTIONS
    )
    assert json.loads((run.path / "towers.json").read_text())["temperature"] == pytest.approx(np.exp(-3.0), rel=0.05)


def test_a_tower_alone_is_an_ordinary_encoder(folder):
    options = {key: value for key, value in OPTIONS.items() if key != "progress"} | {"data": data(), "group": "caption"}
    plan = resolve_run(options | {"encoder": f"image={folder},caption=static"})
    assert not any(tower.pair for tower in plan.towers) and plan.closed_form and plan.config.temperature == 0.07
    both = resolve_run(options | {"encoder": str(folder), "image_size": 32})
    assert [tower.pair for tower in both.towers] == [True, True] and both.towers[0].image_size == 32
    wrong = data() | {"other": data()["caption"][::-1]}
    with pytest.raises(InputError, match="share its tower"):
        resolve_run(
            options
            | {
                "data": wrong,
                "columns": "image,caption,other",
                "encoder": str(folder),
                "tune": "image=none,caption=none,other=all",
            }
        )
