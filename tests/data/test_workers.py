"""Progress bars are shown on a terminal unless they are switched off."""

import io
import sys

import pytest

import coulomb
from coulomb.data.workers import progress_bar, track


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


def test_the_evaluation_shows_a_bar(digit_tree, tmp_path, quick, monkeypatch):
    run = coulomb.train(digit_tree, out=tmp_path / "run", evaluate=False, progress=False, **quick | {"epochs": 1})
    output = on_a_terminal(monkeypatch, lambda: coulomb.evaluate(run.path, progress=True))
    assert all(f"evaluating {name}" in output for name in ("trained", "random_init", "raw_pixels"))
    assert "62/62" in output  # 60 images and two measurements
    assert on_a_terminal(monkeypatch, lambda: coulomb.evaluate(run.path, progress=False)) == ""
