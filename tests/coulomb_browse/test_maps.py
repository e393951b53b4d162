"""Positions of all images: neighbors stay neighbors, computed once, again for another index."""

import numpy as np
import pytest

from benchmarks.synthetic_index import write_index
from coulomb.index import Index
from coulomb_browse import maps
from coulomb_browse.maps import image_maps, index_fingerprint, positions


def silent(share, note):
    pass


def places_of(path, key):
    return np.frombuffer(positions(path, key), "<u2").reshape(-1, 2).astype(float)


def kept_neighbors(index, places, k=10):
    """The share of each image's 10 nearest on the map that are of its label."""
    labels = np.array(index.labels)
    distance = ((places[:, None] - places[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    return (labels[np.argsort(distance, 1)[:, :k]] == labels[:, None]).mean()


@pytest.mark.parametrize("landmarks", [2000, 120], ids=["all", "landmarks"])
def test_images_are_beside_images_like_them(tmp_path, monkeypatch, landmarks):
    monkeypatch.setattr(maps, "MAX_TSNE", landmarks)
    index = Index.open(write_index(tmp_path / "i", 300, clusters=6))
    answer = image_maps(index, tmp_path / "maps.npz", silent)
    assert {one["key"] for one in answer["maps"]} >= {"tsne", "pca"}
    assert answer["maps"][0]["key"] in ("umap", "tsne")
    assert ("120 random images" in answer["maps"][0]["caution"]) == (landmarks == 120)
    for one in answer["maps"]:
        places = places_of(tmp_path / "maps.npz", one["key"])
        assert places.shape == (300, 2)
        assert places.max() - places.min() > 40_000
    assert kept_neighbors(index, places_of(tmp_path / "maps.npz", "tsne")) > 0.8  # by chance: 1/6


def test_the_projection_of_all_images_is_their_principal_components(small, tmp_path, monkeypatch):
    monkeypatch.setattr(maps, "MAX_TSNE", 299)
    index = Index.open(small)
    image_maps(index, tmp_path / "maps.npz", silent)
    x = np.asarray(index.features, float)
    left, _, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    found = places_of(tmp_path / "maps.npz", "pca")
    for axis in range(2):
        assert abs(np.corrcoef(found[:, axis], left[:, axis])[0, 1]) > 0.98


def test_it_is_computed_once_and_again_for_another_index(small, tmp_path, monkeypatch):
    path = tmp_path / "maps.npz"
    first = image_maps(Index.open(small), path, silent)
    before = path.read_bytes()
    with monkeypatch.context() as context:
        context.setattr(maps, "feature_maps", None)
        assert image_maps(Index.open(small), path, silent) == first
    image_maps(Index.open(write_index(tmp_path / "other", 100, seed=1)), path, silent)
    assert path.read_bytes() != before
    assert len(places_of(path, "pca")) == 100


@pytest.mark.parametrize("content", [b"", b"broken", b"PK\x03\x04" + b"\0" * 40])
def test_a_damaged_file_is_replaced(small, tmp_path, content, caplog):
    (tmp_path / "maps.npz").write_bytes(content)
    image_maps(Index.open(small), tmp_path / "maps.npz", silent)
    assert "is computed again" in caplog.text
    assert len(places_of(tmp_path / "maps.npz", "pca")) == 300


@pytest.mark.parametrize("images", [1, 2, 5, 31])
def test_few_images_have_a_map(tmp_path, images):
    index = Index.open(write_index(tmp_path / "i", images))
    answer = image_maps(index, tmp_path / "maps.npz", silent)
    assert places_of(tmp_path / "maps.npz", answer["maps"][0]["key"]).shape == (images, 2)


def test_equal_images_have_a_map(small, tmp_path):
    index = Index.open(small)
    index.features = np.ones((300, 8), np.float16)
    answer = image_maps(index, tmp_path / "maps.npz", silent)
    assert "nothing to map" in answer["maps"][0]["caution"]


def test_an_unknown_map_is_refused(small, tmp_path):
    image_maps(Index.open(small), tmp_path / "maps.npz", silent)
    with pytest.raises(ValueError, match="holds no array"):
        positions(tmp_path / "maps.npz", "../../x")


def test_the_fingerprint_changes_with_ids_and_features(tmp_path):
    prints = {
        index_fingerprint(Index.open(write_index(tmp_path / str(number), 50, **options)))
        for number, options in enumerate([{}, {"seed": 1}, {"ids": [f"{at}" for at in range(50)]}])
    }
    assert len(prints) == 3
