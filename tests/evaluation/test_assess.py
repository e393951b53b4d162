"""The evaluation of a run: frozen, complete, on its own data and on other data."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import coulomb
from coulomb.evaluation.contestants import contestants
from coulomb.ground.errors import InputError
from coulomb.report.tables import evaluation_table

QUICK = {"epochs": 1, "batch_size": 8, "image_size": 16, "workers": 0, "progress": False}


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


@pytest.fixture(scope="module")
def run(digit_tree, tmp_path_factory):
    out = tmp_path_factory.mktemp("assess") / "run"
    return coulomb.train(digit_tree, out=out, encoder=network(), evaluate=False, **QUICK)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Color squares of three classes, another size."""
    draw, path = np.random.default_rng(0), tmp_path_factory.mktemp("other") / "other data.npz"
    labels = np.arange(60) % 3
    images = draw.integers(0, 120, (60, 20, 20, 3), dtype=np.uint8) + (labels * 60)[:, None, None, None].astype(
        np.uint8
    )
    np.savez(path, images=images, labels=labels, camera=np.arange(60) // 6)
    return path


def state_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.slow
def test_evaluation_leaves_encoders_unchanged(run, other, fine_tuning_updates, monkeypatch):
    """No parameter or buffer moves in any evaluation, and every module's mode is put back."""
    fine_tuning_updates(2)
    seen = []
    original = contestants

    def watched(*arguments):
        made = original(*arguments)
        for contestant in made.values():
            contestant.encoder.train()  # as a careless caller would leave it
            contestant.encoder.backbone[2].eval()
        seen.extend((each.encoder, state_of(each.encoder)) for each in made.values())
        return made

    monkeypatch.setattr("coulomb.evaluation.assess.contestants", watched)
    mine = network()
    mine[1].eval()  # put to sleep by its owner
    mine_before, on_disk = state_of(mine), (run.path / "encoder.safetensors").read_bytes()
    coulomb.evaluate(run.path, encoder=mine, full=True, progress=False)
    coulomb.evaluate(run.path, encoder=mine, on=str(other), progress=False)
    assert len(seen) == 6
    for encoder, before in [*seen, (mine, mine_before)]:
        assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    for encoder, _ in seen:
        assert encoder.training and not encoder.backbone[2].training and encoder.backbone[1].training
    assert [part.training for part in mine] == [True, False, True, True, True]
    assert (run.path / "encoder.safetensors").read_bytes() == on_disk


def test_evaluation_has_all_metrics_and_is_written(run, fine_tuning_updates):
    fine_tuning_updates(2)
    options = {"knn_k": 3, "many_above": 9, "few_below": 3}
    result = coulomb.evaluate(run.path, encoder=network(), full=True, progress=False, **options)
    assert json.loads((run.path / "evaluation.json").read_text()) == result == run.evaluation
    figures = {"knn", "linear", "few_shot", "retrieval", "clustering", "by_frequency", "per_class", "view_retrieval"}
    for name in ("trained", "random_init", "raw_pixels"):
        assert figures <= result[name].keys() and all(result[name][key] is not None for key in figures)
        assert result[name]["protocol"]["knn"]["k"] == 3
        assert {"linear", "few_shot", "retrieval", "clustering", "by_frequency"} <= result[name]["protocol"].keys()
    assert result["trained"]["fine_tune"].keys() == {"0.01", "0.1", "1"} and "fine_tune" not in result["raw_pixels"]
    assert result["trained"]["protocol"]["fine_tune"]["optimizer"]
    assert [row["class"] for row in result["trained"]["per_class"]] == [f"digit-{label}" for label in range(5)]
    assert [each["against"] for each in result["comparison"]] == ["raw_pixels", "untrained"]
    for each, name in zip(result["comparison"], ("raw_pixels", "random_init"), strict=True):
        for key in ("knn", "linear", "view_retrieval"):
            row = each["measurements"][key]
            assert (row["trained"], row["baseline"]) == pytest.approx((result["trained"][key], result[name][key]))
    text = evaluation_table(result)
    for words in (result["verdict"]["title"], "view R@1", "MAP@R", "NMI", "0.1 of labels", "untrained network"):
        assert words in text
    with np.load(run.path / "samples.npz") as samples:
        assert len(samples["ids"]) and len(samples["training_ids"])
        assert not set(samples["ids"]) & set(samples["training_ids"])
        assert samples["features"].shape[1:] == samples["training_features"].shape[1:]
    page = (run.path / "report.html").read_text()
    assert f'<p class="headline">{result["verdict"]["title"]}</p>' in page
    assert "MAP@R" in page and "fine-tuned with 10 % of the labels" in page and "digit-3" in page


@pytest.mark.slow
def test_transfer(run, other):
    result = coulomb.evaluate(run.path, encoder=network(), on=str(other), progress=False)
    written = list((run.path / "transfer").glob("*.json"))
    assert [path.name for path in written] == ["other-data.npz.json"]
    assert json.loads(written[0].read_text()) == result
    assert result["raw_pixels"]["knn"] > 0.5  # brightness tells the classes apart; chance is a third
    assert result["protocol"]["data"] == str(other) and result["protocol"]["channels"] == 1
    assert result["comparison"][0]["measurements"]["knn"]["n"] == result["trained"]["protocol"]["test"]
    assert result["trained"]["protocol"]["train"] + result["trained"]["protocol"]["test"] == 60
    assert "Transfer to" in (run.path / "report.html").read_text()
    held_out = coulomb.evaluate(run.path, encoder=network(), on=str(other), on_test=str(other), progress=False)
    assert held_out["trained"]["protocol"]["test"] == 60
    grouped = coulomb.evaluate(run.path, encoder=network(), on=str(other), on_group="camera", progress=False)
    assert "2 of 10 groups; no camera is in both" in grouped["protocol"]["split"]


def test_transfer_refuses_invalid_data(run, other, tmp_path):
    np.save(tmp_path / "no labels.npy", np.zeros((30, 16, 16), np.uint8))
    for options, words in [
        ({"on": str(tmp_path / "no labels.npy")}, "has no labels"),
        ({"on": str(other), "on_test": str(tmp_path / "no labels.npy")}, "has no labels"),
        ({"on": str(tmp_path / "nowhere")}, "nowhere"),
        ({"on_test": str(other)}, "give it as on"),
        ({"on_group": "camera"}, "give it as on"),
        ({"on": str(other), "on_group": "camra"}, "did you mean 'camera'"),
        ({"knn_q": 3}, "knn_q=3"),
        ({"many_above": 3, "few_below": 9}, "few_below=9"),
    ]:
        with pytest.raises(InputError, match=words):
            coulomb.evaluate(run.path, encoder=network(), progress=False, **options)


def test_classifier_of_the_run_is_evaluated(digit_tree, tmp_path):
    made = coulomb.train(
        digit_tree, out=tmp_path / "run", method="softmax", encoder="convnet", encoder_width=4, **QUICK
    )
    trained = made.evaluation["trained"]
    assert 0 <= trained["classifier"] <= 1 and "classifier" not in made.evaluation["raw_pixels"]
    assert all("classifier" in row for row in trained["per_class"])
    assert "classifier" in evaluation_table(made.evaluation)
