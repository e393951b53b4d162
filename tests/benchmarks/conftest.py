import sys

import pytest

from benchmarks.command import command


@pytest.fixture
def run(monkeypatch, capsys, own_console):
    """Runs a benchmark as ``python -m`` does; returns its exit code and output."""

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            command(module.main)
        return ended.value.code, capsys.readouterr()

    return run
