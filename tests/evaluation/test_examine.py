"""From run folders to evidence: copies by hand-made images, the network by a short run."""

import json
import shutil

import numpy as np
import pytest

import coulomb
from coulomb.evaluation.examine import examine, read_failure
from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.tables.sources.arrays import open_digits
from coulomb.training.record.folder import RunFolder

OPTIONS = {"epochs": 1, "encoder_width": 4, "batch_size": 32, "views": "digits", "evaluate": False, "progress": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on 100 digits, of which 6 are exact copies and 4 brighter ones; 3 of 40 test images were trained on."""
    place = tmp_path_factory.mktemp("examine")
    images, labels = open_digits().array[:200].copy(), open_digits().labels[:200]
    images[90:96] = images[:6]
    images[96:100] = (images[10:14] * 0.9).astype(np.uint8)
    images[100:103] = images[20:23]
    np.savez(place / "train.npz", images=images[:100], labels=labels[:100])
    np.savez(place / "test.npz", images=images[100:140], labels=labels[100:140])
    run = coulomb.train(str(place / "train.npz"), test=str(place / "test.npz"), out=str(place / "run"), **OPTIONS)
    return run.folder


@pytest.fixture(scope="module")
def found(folder):
    return examine(folder, progress=False)


def states(found):
    return {each["name"]: each["state"] for each in found["checked"]}


def figure(found, name):
    (verdict,) = [each for each in found["verdicts"] if each["name"] == name]
    return verdict["evidence"][0]["value"]


def test_copies_and_leaks_are_counted(found):
    assert figure(found, "duplicates") == pytest.approx(10 / 100)
    assert figure(found, "evaluation-leak") == pytest.approx(3 / 40)
    assert not found["healthy"]


def test_doctor_json_is_the_returned_value(folder, found):
    assert json.loads(folder.doctor.read_text()) == found
    assert found["step"] == 3


def test_network_figures_are_measured(found):
    known = states(found)
    for name in ("learning-rate-too-high", "head-not-normalized", "augmentation-too-weak", "temperature-too-low"):
        assert known[name] == "well"


def test_quick_needs_neither_images_nor_checkpoint(folder, tmp_path):
    copy = RunFolder(shutil.copytree(folder.path, tmp_path / "run"))
    shutil.rmtree(copy.path / "checkpoints")
    copy.config.write_text(copy.config.read_text().replace("train.npz", "gone.npz"))
    known = states(examine(copy, quick=True))
    assert known["duplicates"] == known["head-not-normalized"] == "unknown"
    assert known["temperature-too-low"] == "well"


def test_data_that_are_gone_are_not_blamed_on_a_method_of_the_user(folder, found, monkeypatch):
    before = folder.doctor.read_bytes()

    def gone(*args, **named):
        raise DataUnavailableError("the server is gone")

    monkeypatch.setattr("coulomb.evaluation.examine_network.METHODS", {})
    monkeypatch.setattr("coulomb.evaluation.examine_network.label_figures", gone)
    with pytest.raises(DataUnavailableError, match="the server is gone"):
        examine(folder, progress=False)
    assert folder.doctor.read_bytes() == before  # nothing is saved


def test_folder_that_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a run folder"):
        examine(RunFolder(tmp_path))


def test_failure_is_read_from_the_log(tmp_path):
    run = RunFolder(tmp_path)
    assert read_failure(run) is None
    stop = "2026-01-01 00:00:00 ERROR stopped: NonFiniteError: the loss became non-finite at step 3; first: x. The batch is\n"
    run.log.write_text(stop)
    assert read_failure(run) == "the loss became non-finite at step 3; first: x"
    run.log.write_text(stop + "2026-01-01 00:00:01 INFO trained 12 steps\n")  # resumed with success
    assert read_failure(run) is None
