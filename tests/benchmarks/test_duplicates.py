"""The search for duplicates beside imagededup's, on a tiny problem and a stand-in for imagededup."""

import sys
from types import ModuleType

from sklearn.metrics.pairwise import cosine_similarity

from benchmarks import duplicates


def test_both_searches_find_the_planted_pairs(monkeypatch, run):
    retrieval = ModuleType("imagededup.handlers.search.retrieval")
    retrieval.get_cosine_similarity = lambda x, verbose: cosine_similarity(x)
    for name in ("imagededup", "imagededup.handlers", "imagededup.handlers.search"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, retrieval.__name__, retrieval)
    code, said = run(duplicates, "--rows", 400, "--dim", 32, "--repeats", 1)
    _, ours, theirs = said.out.splitlines()
    assert code == 0 and ours.startswith("coulomb") and theirs.startswith("imagededup")
    assert all("0 missed     0 too many" in line for line in (ours, theirs))
