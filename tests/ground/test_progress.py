"""Progress bars are shown on a terminal unless they are switched off."""

import io
import sys

import pytest

import coulomb
from coulomb.evaluation.contestants import measuring
from coulomb.ground.progress import progress_bar, track


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_a_terminal(monkeypatch, function):
    """Returns what ``function`` prints to stderr if it is a terminal."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Terminal())
        patch.setenv("TERM", "xterm")
        function()
        return sys.stderr.getvalue()


@pytest.mark.parametrize("progress", [True, None, False])
def test_progress_bar_is_shown_on_a_terminal(monkeypatch, progress):
    def read():
        assert list(track([(1, "a"), (2, "b")], 3, "reading", progress)) == ["a", "b"]

    assert ("reading" in on_a_terminal(monkeypatch, read)) == (progress is not False)


def test_no_progress_bar_without_a_terminal(capsys):
    with progress_bar(3, "reading", True) as advance:
        advance(3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("progress", [True, None, False])
def test_long_tasks_print_lines_without_a_terminal(monkeypatch, caplog, progress):
    clock = [0.0]
    monkeypatch.setattr("coulomb.ground.progress.time.monotonic", lambda: clock[0])
    with caplog.at_level("INFO", "coulomb"), progress_bar(100, "reading", progress) as advance:
        for _ in range(100):
            clock[0] += 6
            advance(1)
        advance.doing("writing")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:2] == (
        [] if progress is False else ["reading: 3 of 100, about 10 min left", "reading: 6 of 100, about 9 min left"]
    )
    assert len(lines) == (
        0 if progress is False else 33
    )  # one for every three steps: none is less than 15 seconds apart


def test_a_long_measurement_is_named_without_a_terminal(monkeypatch, caplog):
    clock = [0.0]
    monkeypatch.setattr("coulomb.ground.progress.time.monotonic", lambda: clock[0])
    with caplog.at_level("INFO", "coulomb"), progress_bar(2, "evaluating", True) as advance:
        doing = measuring(advance, "evaluating lite0")
        doing("kNN")
        clock[0] += 60
        doing("linear probe")
    assert [record.getMessage() for record in caplog.records] == [
        "evaluating lite0: linear probe: 1 of 2, about 60 s left"
    ]


@pytest.mark.slow
def test_the_evaluation_shows_a_bar(digit_tree, tmp_path, quick, monkeypatch):
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **quick | {"epochs": 1})
    output = on_a_terminal(monkeypatch, lambda: coulomb.evaluate(run.path, progress=True))
    assert all(f"evaluating {name}" in output for name in ("trained", "random_init", "raw_pixels"))
    assert "60/60" in output  # images
    for measurement in ("kNN", "linear probe", "few-shot", "retrieval", "clustering", "retrieval of views"):
        assert f"evaluating raw_pixels: {measurement} " in output
    assert on_a_terminal(monkeypatch, lambda: coulomb.evaluate(run.path, progress=False)) == ""
