"""Maps of the features."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

from coulomb.evaluation.feature_map import MAX_TSNE, MIN_TSNE, feature_maps


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
    module.__spec__ = ModuleSpec("umap", None)
    monkeypatch.setitem(sys.modules, "umap", module)
    return module


def test_a_map_by_umap_where_it_is_installed(features, umap):
    assert [layout.key for layout in feature_maps(features)] == ["tsne", "umap", "pca"]
    umap.broken = True
    problems = []
    assert [layout.key for layout in feature_maps(features, problems=problems)] == ["tsne", "pca"]
    assert problems == ["UMAP is installed but fails (SystemError: numba needs another NumPy): its map is left out."]


def test_every_map_lies_in_its_square(features):
    for layout in feature_maps(features):
        assert layout.places.min() >= 4
        assert layout.places.max() <= 96


def test_too_many_or_too_few_for_neighborhoods_have_pca(features):
    assert [layout.key for layout in feature_maps(features[:20])] == ["pca"]
    many = np.random.default_rng(0).standard_normal((MAX_TSNE + 1, 6))
    assert [layout.key for layout in feature_maps(many)] == ["pca"]
    assert feature_maps(np.ones((40, 6))) == []


def test_pca_keeps_distances_of_planar_data_and_is_reproducible():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, np.pi / 2, 20)
    x = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(20)])
    (pca,) = feature_maps(x)
    pairs = (
        np.linalg.norm(x[:, None] - x[None], axis=-1),
        np.linalg.norm(pca.places[:, None] - pca.places[None], axis=-1),
    )
    ratio = pairs[1][pairs[0] > 0.2] / pairs[0][pairs[0] > 0.2]
    assert ratio.std() / ratio.mean() < 1e-2
    assert "100%" in pca.caution
    assert np.array_equal(pca.places, feature_maps(x)[0].places)


def test_tsne_comes_first_where_it_is_possible_and_separates_clusters():
    rng = np.random.default_rng(0)
    centers = np.repeat(np.eye(10)[:3], 15, axis=0)
    maps = feature_maps(centers + 0.02 * rng.standard_normal(centers.shape))
    assert [found.key for found in maps] == ["tsne", "pca"]
    places = maps[0].places
    assert places.min() >= 3
    assert places.max() <= 97
    groups = places.reshape(3, 15, 2)
    middle = groups.mean(1)
    spread = np.linalg.norm(groups - middle[:, None], axis=-1).max()
    gaps = np.linalg.norm(middle[:, None] - middle[None], axis=-1)[np.triu_indices(3, 1)]
    assert gaps.min() > spread


@pytest.mark.parametrize("n", [1, 2, 3, MIN_TSNE - 1])
def test_few_images_have_pca_alone(n):
    maps = feature_maps(np.random.default_rng(0).standard_normal((n, 4)))
    assert [found.key for found in maps] == (["pca"] if n > 1 else [])


def test_identical_features_have_no_map():
    assert feature_maps(np.ones((50, 4))) == []
