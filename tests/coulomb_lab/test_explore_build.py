"""The explorer's file and its command, without a browser."""

import base64
import hashlib
import re

import pytest
from typer.testing import CliRunner

from coulomb.cli.every import app
from coulomb.ground.errors import InputError
from coulomb_lab.experiments import listing
from coulomb_lab.explore import SCRIPTS, build_explorer, render_explorer


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path):
    path = build_explorer(tmp_path / "deep" / "explore.html")
    text = path.read_text(encoding="utf-8")
    assert text == render_explorer()
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\bsrc=|@import|url\((?!#)|fetch\(|XMLHttpRequest|eval\(|style=|@[A-Z_]+@", text)
    assert text.count("<script") == text.count('"use strict"') == 1
    assert len(text) < 200_000
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [path]
    with pytest.raises(InputError, match=r"is a folder.*index\.html"):
        build_explorer(tmp_path)


def test_its_policy_allows_these_parts_alone():
    text = render_explorer()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        inside = re.search(f"<{tag}>(.*)</{tag}>", text, re.S)[1]
        assert f"{rule} 'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'" in policy


def test_every_script_is_built_in():
    from importlib import resources

    there = {entry.name for entry in resources.files("coulomb_lab.explore").iterdir() if entry.name.endswith(".js")}
    assert there == set(SCRIPTS)
    assert len(SCRIPTS) == len(there)


def test_the_command_writes_it(tmp_path):
    for out, path in ((tmp_path, tmp_path / "explore" / "index.html"), (tmp_path / "a.html", tmp_path / "a.html")):
        done = CliRunner().invoke(app, ["lab", "explore", "--out", str(out)])
        assert (done.exit_code, done.output) == (0, f"page: {path}\n")
        assert path.read_text(encoding="utf-8") == render_explorer()
    assert "explore  " in listing()


def test_options_of_training_are_refused(tmp_path):
    done = CliRunner().invoke(app, ["lab", "explore", "--out", str(tmp_path), "--epochs", "3", "--json"])
    assert isinstance(done.exception, InputError)
    assert "--epochs, --json: explore has no such option" in str(done.exception)
