import sys

import numpy as np

from benchmarks import curation
from curation_cases import classes_of


def quiet(text):
    pass


def test_duplicates_are_compared_with_fp64():
    result = curation.bench_duplicates(2000, 32, quiet)
    assert (result["recall"], result["not_in_fp64"]) == (1.0, 0)
    assert 10 < result["pairs"] < 50 and result["memory_mb"] < 500


def test_label_errors_without_cleanlab(monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    x, y = classes_of(400, 4)
    result = curation.bench_label_errors(x, y, quiet)
    assert result["precision"]["coulomb"] > 0.9 and "not installed" in result["skipped"]
    text = curation.render({"duplicates": curation.bench_duplicates(400, 32, quiet), "label_errors": result})
    assert text.endswith("skipped: cleanlab is not installed") and "above the cut-off" in text
    assert result["cutoff"]["recall"] > 0.9


def test_chosen_images_are_compared_with_random_ones(monkeypatch):
    monkeypatch.setattr(curation, "BUDGET", 6)
    monkeypatch.setattr(curation, "DRAWS", 4)
    x, y = classes_of(400, 6, noise=0.2)
    result = curation.bench_choose(x[:300], y[:300], x[300:], y[300:], quiet)
    assert result["typical"]["mean"] > result["random"]["mean"]
    text = curation.render({"duplicates": curation.bench_duplicates(400, 32, quiet), "choose": result})
    assert "6 labels, typical" in text and "recall 100" in text


def test_defaults_are_compared_with_those_before(monkeypatch):
    monkeypatch.setattr(curation, "BUDGET", 60)
    x, y = classes_of(400, 4, noise=0.2)
    result = curation.bench_defaults(x, y, quiet)
    assert result["clusters"]["k-means"]["number"] == 14 and result["clusters"]["k-means"]["none"] == 0
    assert result["clusters"]["k-means"]["purity"] > 0.9
    sure = result["classify"]["60 labels, default"]
    assert 0.5 < sure["sure"] <= 1 and sure["accuracy of sure"] >= sure["accuracy"]
    text = curation.render({"duplicates": curation.bench_duplicates(400, 32, quiet), "defaults": result})
    assert "k-means: 14 clusters, 0.0% of the images in none" in text


def test_memory_is_sampled():
    with curation.PeakMemory() as memory:
        block = np.ones(20_000_000)
        curation.time.sleep(0.1)
        del block
    assert memory.added > 95
