"""Run folders are never overwritten, and one process trains a run at a time."""

import json

import pytest

import coulomb
from coulomb.ground.errors import InputError
from coulomb.ground.files import locked
from coulomb.training.record.folder import RunFolder, free_folder, read_evaluation


def test_an_existing_folder_is_never_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"already exists.*or remove it"):
        RunFolder(tmp_path / "run").create()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]
    (tmp_path / "run" / "config.yaml").write_text("")
    with pytest.raises(InputError, match=r"already exists.*--resume"):
        RunFolder(tmp_path / "run").create()


def test_an_empty_folder_may_be_used(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create()
    assert folder.checkpoint.parent.is_dir()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("x")
    with pytest.raises(InputError, match="already exists"):
        RunFolder(tmp_path / "run").create()
    with pytest.raises(InputError, match="cannot be created"):
        RunFolder(tmp_path / "run" / "below").create()


def test_free_folder_counts_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(free_folder("my photos/..", "simclr")) == "runs/my-photos-simclr"
    (tmp_path / "runs" / "my-photos-simclr").mkdir(parents=True)
    assert str(free_folder("my photos/..", "simclr")) == "runs/my-photos-simclr-2"


def test_resuming_a_run_that_is_training_is_refused(digit_tree, tmp_path, quick):
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **quick | {"epochs": 1})
    before = (run.path / "train.log").read_text()
    with locked(run.path / "lock"), pytest.raises(InputError, match="is training this run"):
        coulomb.train(resume_from=run.path, evaluate=False, progress=False)
    assert (run.path / "train.log").read_text() == before


@pytest.mark.parametrize("wrong", [{"per_class": [3]}, {"per_class": 3}, [1], 2, "x"])
def test_figures_of_any_contestant_are_checked(tmp_path, wrong):
    folder = RunFolder(tmp_path)
    good = {"a_new_one": {"knn": 0.5, "per_class": [{"train": 3, "knn": None}]}, "none": None, "protocol": {}}
    folder.evaluation.write_text(json.dumps(good))
    assert read_evaluation(folder) == good
    folder.evaluation.write_text(json.dumps(good | {"a_new_one": wrong}))
    with pytest.raises(InputError, match="evaluation.json: 'a_new_one' is .* but must be .*coulomb evaluate"):
        read_evaluation(folder)
