"""The script that compares ways to mask tiles, on tiny problems."""

import re
import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "masks.py"


def test_it_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["masks.py", "--repeats", "1", "--sizes", "8", "--batches", "80"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    machine, *lines = capsys.readouterr().out.splitlines()
    assert "threads, torch" in machine
    assert [re.split(r"  +", line)[0] for line in lines] == [
        "tile 8 x 8, ids",
        "lse over negatives by ids, 80",
        "HardSimpleLoss, top 64, 80",
    ]
