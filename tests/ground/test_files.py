"""Files are written atomically; a lock is held by one process."""

import errno
import json
import multiprocessing
import os

import pytest

from coulomb.ground.errors import InputError
from coulomb.ground.files import locked, write_atomically, write_json, write_text
from coulomb.ground.reading import read_json


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


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"data\.json: cannot be written \(No space left on device\)"):
        write_atomically(tmp_path / "data.json", b"{}")
    assert not list(tmp_path.iterdir())
