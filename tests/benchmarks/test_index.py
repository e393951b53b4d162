import json

import pytest

from benchmarks.index import bench_index, render
from coulomb.ground.errors import InputError


def test_all_parts_are_measured(tmp_path):
    result = bench_index(images=6, rows=500, width=8, files=12, repeats=1, folder=tmp_path)
    assert json.loads(json.dumps(result)) == result
    assert result["search"]["error"] < 1e-6 and set(result["search"]["seconds"]) == {
        "open",
        "one query",
        "1,000 queries",
    }
    assert result["build"]["ratio"] > 0 and result["build"]["images"] == 6
    text = render(result)
    assert "500 × 8" in text and "update of 12 files" in text and "% of the encoder's speed" in text
    assert not list(tmp_path.iterdir())


def test_one_part(tmp_path):
    assert set(bench_index(["search"], rows=50, width=4, repeats=1, folder=tmp_path)) == {
        "machine",
        "repeats",
        "search",
    }


def test_an_unknown_part():
    with pytest.raises(InputError, match="only='serch': must be one of search, update, build"):
        bench_index(["serch"])
