import json

import numpy as np
import pytest

from benchmarks.streaming import bench_streaming, distinct_classes, render, same_class
from coulomb.ground.errors import InputError


def test_all_parts_are_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "own"))
    result = bench_streaming(images=24, side=32, entries=2000, delay=0.0, workers=0, repeats=1, folder=tmp_path)
    assert json.loads(json.dumps(result)) == result
    assert result["open"]["entries"] == 2000 and result["open"]["seconds"] > 0
    assert result["throughput"]["images"] == 24 and result["throughput"]["ratio"] > 0
    chances = result["shuffle"]["same_class"]
    assert chances["true shuffle"] == pytest.approx(chances["windows, random shards"], rel=0.05)
    text = render(result)
    assert "opening 2,000 images" in text and "% of local" in text and "2 classes" in text
    assert not list(tmp_path.iterdir())  # the user's cache is not used


def test_measures_of_the_shuffle_equal_counts_by_hand():
    labels = np.array([0, 0, 1, 1, 0, 1, 2, 3, 9])
    assert same_class(labels, 4) == (4 + 0) / (2 * 12) and distinct_classes(labels, 4) == (2 + 4) / 2


def test_an_unknown_part():
    with pytest.raises(InputError, match="only='speed': must be one of open, throughput, shuffle"):
        bench_streaming(["speed"])
