import sys
from types import ModuleType

import numpy as np
import pytest

from coulomb.report import feature_map
from coulomb.report.feature_map import layouts


@pytest.fixture
def features():
    return np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)


@pytest.fixture
def umap(monkeypatch):
    """A UMAP that keeps the first two columns, as if installed; set ``broken`` to make it fail."""
    module = ModuleType("umap")
    module.broken = False

    class UMAP:
        def __init__(self, n_neighbors, init, random_state, n_jobs):
            assert n_neighbors == 15
            assert init.shape == (40, 2)

        def fit_transform(self, scores):
            if module.broken:
                raise SystemError("numba needs another NumPy")
            return scores[:, :2]

    module.UMAP = UMAP
    monkeypatch.setitem(sys.modules, "umap", module)
    monkeypatch.setattr(feature_map.importlib.util, "find_spec", lambda name: object())
    return module


def test_a_map_by_umap_where_it_is_installed(features, umap):
    assert [layout.key for layout in layouts(features)] == ["tsne", "umap", "pca"]
    umap.broken = True
    problems = []
    assert [layout.key for layout in layouts(features, problems=problems)] == ["tsne", "pca"]
    assert problems == ["UMAP is installed but fails (SystemError: numba needs another NumPy): no map by it."]


def test_every_map_lies_in_its_square(features):
    for layout in layouts(features):
        assert layout.places.min() >= 4
        assert layout.places.max() <= 96


def test_too_many_or_too_few_for_neighbourhoods_have_pca(features, monkeypatch):
    assert [layout.key for layout in layouts(features[:20])] == ["pca"]
    monkeypatch.setattr(feature_map, "NEIGHBOURS_UP_TO", 30)
    assert [layout.key for layout in layouts(features)] == ["pca"]
    assert layouts(np.ones((40, 6))) == []
