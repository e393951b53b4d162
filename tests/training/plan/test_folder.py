"""Run folders are never overwritten, files are written atomically, and one process trains a run at a time."""

import json
import multiprocessing
import os

import pytest

import coulomb
from coulomb.ground.errors import InputError
from coulomb.ground.reading import read_json
from coulomb.training.plan.folder import RunFolder, free_folder, locked, write_json, write_text


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


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(ValueError):
        write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"x": 1}


def test_json_errors_name_the_file(tmp_path):
    with pytest.raises(InputError, match="missing.json"):
        read_json(tmp_path / "missing.json")
    write_text(tmp_path / "broken.json", "{\n oops")
    with pytest.raises(InputError, match=r"broken\.json.*line 2"):
        read_json(tmp_path / "broken.json")


def test_a_second_process_is_refused_until_the_first_ends(tmp_path):
    path = tmp_path / "lock"
    with locked(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()
        with (
            pytest.raises(InputError, match=rf"another process \({os.getpid()} on .*\) is training this run"),
            locked(path),
        ):
            pass
        assert path.exists()
    assert not path.exists()


@pytest.mark.parametrize("left", ['{"pid": 1, "host": "elsewhere"}', "", "{"])
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, left):
    path = tmp_path / "lock"
    path.write_text(left)
    with locked(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    path, context = tmp_path / "lock", multiprocessing.get_context("fork")
    release = context.Event()
    with locked(path):
        child = context.Process(target=release.wait, args=(30,))
        child.start()
    with locked(path):
        assert child.is_alive()
    release.set()
    child.join()


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match="cannot be opened"), locked(tmp_path / "lock"):
        pass
    assert (tmp_path / "mine").read_text() == "kept"


def test_resuming_a_run_that_is_training_is_refused(digit_tree, tmp_path, quick):
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **quick | {"epochs": 1})
    before = (run.path / "train.log").read_text()
    with locked(run.path / "lock"), pytest.raises(InputError, match="is training this run"):
        coulomb.train(resume_from=run.path, evaluate=False, progress=False)
    assert (run.path / "train.log").read_text() == before
