"""Every benchmark is a command of the same shape."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import listing

FOLDER = Path(benchmarks.__file__).parent
NAMES = [line.split()[2].removeprefix("benchmarks.") for line in listing()]


def test_the_list_names_every_file_that_is_a_command():
    commands = [path.stem for path in FOLDER.glob("*.py") if "\nif __name__ ==" in path.read_text(encoding="utf-8")]
    assert set(NAMES) == set(commands) - {"__main__"} and len(NAMES) > 10
    shown = subprocess.run([sys.executable, "-m", "benchmarks"], capture_output=True, text=True, cwd=FOLDER.parent)
    assert shown.stdout.splitlines()[1:] == listing() and all(len(line.split()) > 6 for line in listing())


@pytest.mark.parametrize("name", NAMES)
def test_help_and_an_unknown_option(run, name):
    module = importlib.import_module(f"benchmarks.{name}")
    code, said = run(module, "--help")
    assert code == 0 and f"python -m benchmarks.{name}" in said.out
    code, said = run(module, "--speed-of-light")
    assert code == 2 and said.err.count("coulomb: error:") == 1 and "--speed-of-light" in said.err
