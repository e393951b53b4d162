"""The contestants of a run that starts from weights: its starting point, the same architecture untrained, and drift."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

import coulomb
from coulomb.evaluation.contestants import Contestant, contestants
from coulomb.evaluation.doctor import render
from coulomb.kinds.image.views import make_views
from coulomb.models import load_encoder
from coulomb.models.features import extract_features
from coulomb.models.folding import folded
from coulomb.models.image_network import Normalization
from coulomb.report.tables import evaluation_table, summary_table
from coulomb.tables import Samples
from coulomb.tables.workers import split_batches
from coulomb.training.plan.resolve import reopen
from coulomb.training.record.folder import RunFolder

QUICK = {"epochs": 1, "batch_size": 8, "image_size": 16, "workers": 0, "progress": False}


@pytest.fixture(scope="module")
def weights(digit_tree, tmp_path_factory):
    """An earlier run, from whose weights the other runs start."""
    out = tmp_path_factory.mktemp("weights") / "earlier"
    return coulomb.train(digit_tree, out=out, encoder="convnet", encoder_width=8, evaluate=False, **QUICK).path


@pytest.fixture(scope="module")
def run(digit_tree, weights, tmp_path_factory):
    out = tmp_path_factory.mktemp("from-weights") / "run"
    made = coulomb.train(digit_tree, out=out, encoder=f"run:{weights}", tune="all", **QUICK)
    shutil.move(weights, weights.with_name("gone"))  # nothing below may need them
    return made


def opened(run):
    plan = reopen(RunFolder(run.path), progress=False)
    config, prepared, views = plan.config, plan.prepared, plan.views
    return config, prepared, views


def state(encoder):
    return encoder.backbone.state_dict()


def test_starting_point_is_the_untouched_network_and_random_init_is_random(run, weights):
    config, prepared, views = opened(run)
    found = contestants(config, RunFolder(run.path), prepared, views, None)
    assert list(found) == ["trained", "starting_point", "random_init", "raw_pixels"]
    published = state(load_encoder(weights.with_name("gone")))
    start, random = state(found["starting_point"].encoder), state(found["random_init"].encoder)
    assert all(torch.equal(start[name], value) for name, value in published.items())
    filters = [name for name, value in random.items() if value.ndim == 4]
    assert filters and not any(torch.allclose(random[name], start[name]) for name in filters)
    again = contestants(config, RunFolder(run.path), prepared, views, None)["random_init"]
    assert all(torch.equal(value, again.encoder.backbone.state_dict()[name]) for name, value in random.items())
    trained = state(found["trained"].encoder)
    assert not any(torch.equal(trained[name], start[name]) for name in filters)


def test_all_encoders_normalize_alike(run):
    config, prepared, views = opened(run)
    found = contestants(config, RunFolder(run.path), prepared, views, None)
    mean = found["trained"].encoder.normalize.mean
    assert all(torch.equal(each.encoder.normalize.mean, mean) for each in found.values())
    assert found["raw_pixels"].pixels.mean.shape == mean.shape


def test_evaluation_holds_the_starting_point_everywhere(run, fine_tuning_updates):
    fine_tuning_updates(2)
    result = coulomb.evaluate(run.path, full=True, progress=False)
    assert json.loads((run.path / "evaluation.json").read_text()) == result == run.evaluation
    assert result["starting_point"].keys() == result["random_init"].keys() | {"fine_tune"}
    assert [each["against"] for each in result["comparison"]] == ["starting_point", "raw_pixels", "untrained"]
    row = result["comparison"][0]["measurements"]["knn"]
    assert (row["trained"], row["baseline"]) == pytest.approx(
        (result["trained"]["knn"], result["starting_point"]["knn"])
    )
    assert "before training" in result["protocol"]["starting_point"]
    drift = result["drift"]
    assert 0 < drift["distance"] < 2 and -1 < drift["cka"] <= 1 and drift["images"] == 12
    assert "weights" in result["verdict"]["sentence"]
    text = evaluation_table(result)
    assert "starting weights" in text and "linear CKA" in text and "fine-tuned" in text
    page = (run.path / "report.html").read_text()
    assert "starting weights" in page and "linear CKA" in page and 'class="bar starting_point"' in page


@pytest.mark.parametrize("tune", ["none", "whiten"])
def test_frozen_network_embeds_each_image_once_for_both_contestants(digit_tree, run, tmp_path, monkeypatch, tune):
    made = coulomb.train(
        digit_tree, out=tmp_path / "run", encoder=f"run:{run.path}", tune=tune, evaluate=False, **QUICK
    )
    config, prepared, views = opened(made)
    embedded, extract = [], extract_features

    def counted(encoder, images, indices, *arguments, **options):
        embedded.extend(indices)
        return extract(encoder, images, indices, *arguments, **options)

    monkeypatch.setattr("coulomb.evaluation.contestants.extract_features", counted)
    found = contestants(config, RunFolder(made.path), prepared, views, None)
    for part in (prepared.train, prepared.test):
        seen = []
        features, indices = found["trained"].features(part, seen.append)
        start, same = found["starting_point"].features(part, seen.append)
        assert seen == [len(part.indices)] * 2 and sorted(embedded) == sorted(indices) == sorted(same)
        embedded.clear()
        found["starting_point"].features(part)
        assert len(embedded) == len(part.indices)  # taken once
        embedded.clear()
        expected = [
            extract(folded(found[name].encoder), part.images, part.indices, views.plain)[0]
            for name in found
            if name in ("trained", "starting_point")
        ]
        for one, other in zip((features, start), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert not found["starting_point"].cached


def test_transfer_compares_the_starting_point(run, tmp_path):
    draw, labels = np.random.default_rng(0), np.arange(40) % 2
    images = draw.integers(0, 120, (40, 16, 16), dtype=np.uint8) + (labels * 100)[:, None, None].astype(np.uint8)
    np.savez(tmp_path / "other.npz", images=images, labels=labels)
    result = coulomb.evaluate(run.path, on=str(tmp_path / "other.npz"), progress=False)
    assert result["starting_point"]["knn"] is not None and result["drift"]["distance"] > 0
    assert result["comparison"][0]["against"] == "starting_point"
    assert "starting_point" in result["protocol"]


@pytest.mark.slow
def test_run_without_training_is_even_with_its_start(digit_tree, run, tmp_path):
    """Identical features: every difference is exactly zero, and the verdict is to use the weights as they are."""
    made = tmp_path / "same"
    shutil.copytree(run.path, made)
    for name in ("encoder.safetensors", "encoder.json"):
        shutil.copy(made / "checkpoints" / "initial" / name, made / name)
    result = coulomb.evaluate(made, progress=False)
    first = result["comparison"][0]
    assert first["overall"]["difference"] == 0 and first["overall"]["outcome"] == "even"
    assert result["drift"]["distance"] == pytest.approx(0, abs=1e-6) and result["drift"]["cka"] == pytest.approx(1)
    assert result["verdict"]["level"] in ("use_starting_point", "nothing_measurable", "worse_than_raw_pixels")


def test_resumed_run_needs_neither_the_network_nor_the_weights(digit_tree, run, weights, tmp_path):
    """Resumed after its first epoch, with the weights' folder gone, a run ends with the weights of an uninterrupted one."""
    shutil.copytree(weights.with_name("gone"), weights, dirs_exist_ok=True)
    options = QUICK | {"encoder": f"run:{weights}", "evaluate": False, "epochs": 2}
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", **options)
    halves = tmp_path / "halves"
    shutil.copytree(whole.path, halves)
    for name in ("last.ckpt", "previous.ckpt"):
        (halves / "checkpoints" / name).unlink(missing_ok=True)
    shutil.rmtree(weights)
    again = coulomb.train(resume_from=halves, evaluate=False, progress=False)
    for name, value in load_encoder(whole.path).state_dict().items():
        assert torch.equal(value, load_encoder(again.path).state_dict()[name]), name


def test_own_module_has_no_starting_point(digit_tree, tmp_path):
    """Whether a user's module has been given trained weights is unknown: its initial weights are the untrained network."""
    from torch import nn

    module = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    made = coulomb.train(digit_tree, out=tmp_path / "own", encoder=module, evaluate=False, **QUICK)
    plan = reopen(RunFolder(made.path), {"encoder": module}, progress=False)
    config, prepared, views = plan.config, plan.prepared, plan.views
    found = contestants(config, RunFolder(made.path), prepared, views, module)
    assert list(found) == ["trained", "random_init", "raw_pixels"]
    initial = found["random_init"].encoder.backbone.state_dict()
    assert all(torch.equal(initial[name], value) for name, value in before.items())


def test_doctor_reads_the_drift(run):
    checked = {check["name"]: check for check in run.doctor["checked"]}
    assert {"drift", "forgetting"} <= checked.keys()
    assert "distance of two images" in checked["drift"]["why"]
    assert "drift" in render(run.doctor)


def test_seeds_have_the_starting_point(run, tmp_path):
    from coulomb.training.record.seeds import save_seeds, summarize

    out = tmp_path / "seeds"
    save_seeds(out, [0, 1], {})
    for seed in (0, 1):
        shutil.copytree(run.path, out / f"seed{seed}")
    summary = summarize(out)
    assert summary["figures"]["starting_point"]["knn"]["std"] == 0
    assert summary["figures"]["drift"]["cka"]["mean"] == pytest.approx(run.evaluation["drift"]["cka"])
    text = summary_table(summary)
    assert "starting weights" in text and "\ndrift" not in text


def test_raw_pixels_of_large_images_are_averaged():
    """50,000 images of 96 pixels would otherwise take more memory than small machines have, after the whole training."""
    torch.manual_seed(0)
    views = make_views("natural", size=96, channels=3)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.1])
    raw = Contestant(None, views, torch.device("cpu"), pixels=Normalization(3, mean, std))
    view = torch.rand(2, 3, 96, 96)
    expected = (view.view(2, 3, 32, 3, 32, 3).mean((3, 5)) - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    torch.testing.assert_close(raw.embed(view), expected.flatten(1), rtol=1e-4, atol=1e-5)
    assert raw.embed(torch.rand(2, 3, 20, 20)).shape == (2, 3 * 20 * 20)


@pytest.mark.parametrize("pixels", [False, True])
def test_images_that_are_not_cached_are_read_by_workers(run, monkeypatch, pixels):
    monkeypatch.setattr("coulomb.tables.workers.cores", lambda: 2)
    config, prepared, views = opened(run)
    found = contestants(config, RunFolder(run.path), prepared, views, None)["raw_pixels" if pixels else "trained"]
    part, readers = prepared.unseen, torch.zeros(2, dtype=torch.int64).share_memory_()
    expected, _ = found.features(part)
    decode, here = Samples._read_cells, os.getpid()

    def counted(self, positions):
        readers[int(os.getpid() != here)] += 1
        return decode(self, positions)

    monkeypatch.setattr(Samples, "_read_cells", counted)
    # A single batch would be read in this process.
    monkeypatch.setattr("coulomb.tables.samples.split_batches", lambda samples, size: split_batches(samples, 3))
    part.images.workers, part.images._stacks = 2, None
    features, _ = found.features(part)
    torch.testing.assert_close(features, expected)
    assert readers[0] == 0 and readers[1] > 0
