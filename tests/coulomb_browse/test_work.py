"""Decisions: on the disk at once, complete after a crash, undone in order."""

import json
import os
import subprocess
import sys

import pytest

from coulomb.ground.errors import InputError
from coulomb_browse.work import Work


def everything(name):
    return True


@pytest.fixture
def path(tmp_path):
    return tmp_path / "work.jsonl"


@pytest.fixture
def opened(path):
    made = []

    def again():
        if made:
            made.pop().close()
        made.append(Work(path))
        return made[0]

    yield again
    for one in made:
        one.close()


def test_decisions_are_there_after_opening_again(opened, path):
    work = opened()
    work.decide("file", {"a.jpg": "drop", "b.jpg": "keep"}, everything)
    work.decide("label", {"a.jpg": "Küche <b>"}, everything)
    work.decide("file", {"b.jpg": None}, everything)
    again = opened()
    assert dict(again["file"]) == {"a.jpg": "drop"}
    assert dict(again["label"]) == {"a.jpg": "Küche <b>"}
    assert again.undoable == 3
    assert again.damaged == 0
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_undo_restores_what_was_before_also_after_opening_again(opened):
    work = opened()
    work.decide("file", {"a": "keep"}, everything)
    work.decide("file", {"a": "drop", "b": "drop"}, everything)
    work = opened()
    assert work.undo() == ("file", {"a": "keep", "b": None})
    assert dict(work["file"]) == {"a": "keep"}
    work = opened()
    assert work.undo() == ("file", {"a": None})
    assert work.undo() is None
    assert dict(opened()["file"]) == {}


def test_a_decision_after_an_undo_can_be_undone(opened):
    work = opened()
    work.decide("file", {"a": "keep"}, everything)
    work.undo()
    work.decide("file", {"a": "drop"}, everything)
    work = opened()
    assert dict(work["file"]) == {"a": "drop"}
    work.undo()
    assert (work.undo(), dict(work["file"])) == (None, {})


def test_every_cut_of_the_last_line_loses_only_that_line(opened, path):
    work = opened()
    work.decide("label", {"a": "x"}, everything)
    first = path.stat().st_size
    work.decide("label", {"b": "y"}, everything)
    content = path.read_bytes()
    for end in range(first + 1, len(content) - 1):
        path.write_bytes(content[:end])
        work = opened()
        assert (dict(work["label"]), work.damaged) == ({"a": "x"}, 1)
    work.decide("label", {"c": "z"}, everything)
    assert dict(opened()["label"]) == {"a": "x", "c": "z"}
    path.write_bytes(content[:-1])  # only the end of the line is missing: the decision is complete
    work = opened()
    assert (dict(work["label"]), work.damaged) == ({"a": "x", "b": "y"}, 0)
    work.decide("label", {"c": "z"}, everything)
    assert dict(opened()["label"]) == {"a": "x", "b": "y", "c": "z"}


BROKEN = [
    b"\x00\x01\n",
    b'{"n": "1", "kind": "file", "set": {"a": "drop"}}\n',
    b'{"n": 1, "kind": "file", "set": {"a": "burn"}}\n',
    b'{"n": 1, "kind": "other", "set": {"a": "drop"}}\n',
    b'{"n": 1, "kind": ["file"], "set": {"a": "drop"}}\n',
    b'{"n": 1, "kind": "label", "set": {"a": 3}}\n',
    b'{"n": 1, "kind": "label", "set": []}\n',
    b'{"n": 1, "undo": 9}\n',
    b'{"n": true, "undo": 9}\n',
    b"[" * 5000 + b"\n",
    b"[]\n",
]


@pytest.mark.parametrize("line", BROKEN)
def test_lines_that_are_no_decisions_are_skipped_and_counted(opened, path, line):
    good = b'{"n": 1, "kind": "file", "set": {"b": "keep"}}\n'
    path.write_bytes(line + good)
    work = opened()
    assert (dict(work["file"]), work.damaged) == ({"b": "keep"}, 1)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("file", {"a": "burn"}),
        ("file", {}),
        ("file", None),
        ("other", {"a": "x"}),
        ("label", {"a": " "}),
        ("label", {"a": "x" * 1001}),
        ("label", {"a": 1}),
        ("label", {"a": True}),
    ],
)
def test_wrong_decisions_are_refused_and_not_written(opened, path, kind, values):
    work = opened()
    with pytest.raises(InputError):
        work.decide(kind, values, everything)
    assert path.read_bytes() == b""


def test_images_that_the_index_does_not_have_are_refused(opened):
    with pytest.raises(InputError, match="not in the index"):
        opened().decide("file", {"a": "keep"}, lambda name: False)


def test_one_process_at_a_time(opened, path):
    opened()
    with pytest.raises(InputError, match="another coulomb browse has this index open"):
        Work(path)


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("kept")
    (tmp_path / "work.jsonl").symlink_to(target)
    with pytest.raises(InputError, match="cannot be opened"):
        Work(tmp_path / "work.jsonl")
    assert target.read_text() == "kept"


def test_a_full_disk_is_said_and_the_decision_not_kept(opened, monkeypatch):
    work = opened()
    work.decide("file", {"a": "keep"}, everything)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        work.decide("file", {"b": "drop"}, everything)
    assert dict(work["file"]) == {"a": "keep"}


KILLED = """
import os, signal, sys
from pathlib import Path
from coulomb_browse.work import Work
work = Work(Path(sys.argv[1]))
for number in range(20):
    work.decide("label", {str(number): "x"}, lambda name: True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_no_decision_and_leaves_no_lock(opened, path):
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    work = opened()
    assert len(work["label"]) == 20
    assert work.damaged == 0
