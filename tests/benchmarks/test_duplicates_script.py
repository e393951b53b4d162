"""The script that compares the search for duplicates with imagededup's, on a tiny problem and a stand-in for imagededup."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

from sklearn.metrics.pairwise import cosine_similarity

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "duplicates.py"


def test_both_searches_find_the_planted_pairs(monkeypatch, capsys):
    retrieval = ModuleType("imagededup.handlers.search.retrieval")
    retrieval.get_cosine_similarity = lambda x, verbose: cosine_similarity(x)
    for name in ("imagededup", "imagededup.handlers", "imagededup.handlers.search"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, retrieval.__name__, retrieval)
    monkeypatch.setattr(sys, "argv", ["duplicates.py", "--rows", "400", "--dim", "32", "--repeats", "1"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    _, ours, theirs = capsys.readouterr().out.splitlines()
    assert ours.startswith("coulomb") and theirs.startswith("imagededup")
    assert all("0 missed     0 too many" in line for line in (ours, theirs))
