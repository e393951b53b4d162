"""Two processes never train the same run; a lock that nobody holds is taken over."""

import json
import multiprocessing
import os

import pytest

import coulomb
from coulomb.errors import InputError
from coulomb.runs.folder import locked


def test_a_second_one_is_refused_and_the_lock_goes_with_its_owner(tmp_path):
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
def test_a_lock_that_a_killed_process_left_is_taken_over(tmp_path, left):
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
