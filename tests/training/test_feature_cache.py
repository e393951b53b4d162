import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError, LostProcessError
from coulomb.ground.randomness import generator
from coulomb.kinds.image.views import make_views
from coulomb.models import build_encoder
from coulomb.tables import image_samples, open_source
from coulomb.training import feature_cache
from coulomb.training.feature_cache import FeatureCache, nearest_images
from coulomb.training.plan.config import Config
from coulomb.training.record.folder import RunFolder

CPU = torch.device("cpu")
CONFIG = Config(cached_views=3, seed=-5)
VIEWS = make_views("single-channel", size=16, channels=1)


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """A cache of 20 of 30 images in blocks of 8, an encoder, and the store of the images."""
    monkeypatch.setattr(feature_cache, "BLOCK", 8)
    pictures = np.random.default_rng(0).integers(0, 256, (30, 16, 16), np.uint8)
    images = image_samples(open_source(pictures), 16, 1, cache_bytes=0)
    encoder = build_encoder("convnet", channels=1, image_size=16, width=2)
    encoder.freeze()
    indices = np.arange(29, 9, -1)
    return (
        FeatureCache(
            RunFolder(tmp_path).features,
            indices,
            views=CONFIG.cached_views,
            dim=encoder.feature_dim,
            seed=CONFIG.seed,
            neighbors=CONFIG.neighbors,
        ),
        encoder,
        images,
    )


def fill(parts):
    cache, encoder, images = parts
    cache.fill(encoder, images, VIEWS, CPU)
    return cache.opened()


def test_rows_are_features_of_stateless_views(parts):
    cache, (_, encoder, images) = fill(parts), parts
    batch = images.__getitems__(cache.indices[8:16].tolist())
    drawn = VIEWS(batch.stack, generator(-5, "cached views", 1), n=3)
    with torch.no_grad():
        expected = torch.stack([encoder.eval().backbone_features(view) for view in drawn], 1)
    got = cache.samples().__getitems__(cache.indices[8:16].tolist())
    torch.testing.assert_close(got.stack.values, expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(got.sample, batch.sample) and got.failed == []
    assert cache.samples().__getitems__([15, 27]).stack.row.tolist() == [14, 2]


def test_the_file_has_the_stated_size_and_is_deleted(parts):
    cache = fill(parts)
    assert cache.path.stat().st_size == cache.nbytes == 20 * 3 * 16 * 4
    cache.delete()
    assert not list(cache.path.parent.iterdir())


def test_only_missing_blocks_are_computed_again(parts, monkeypatch):
    cache, encoder, images = parts
    compute, calls = feature_cache._features, []

    def stop_at_the_second(encoder, views):
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(1)
        return compute(encoder, views)

    monkeypatch.setattr(feature_cache, "_features", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        cache.fill(encoder, images, VIEWS, CPU)
    assert cache.count_blocks() == 1 and cache.blocks == 3
    monkeypatch.setattr(feature_cache, "_features", lambda *given: calls.append(1) or compute(*given))
    resumed = fill(parts).rows.copy()
    assert len(calls) == 3
    cache.delete()
    np.testing.assert_array_equal(fill(parts).rows, resumed)
    fill(parts)
    assert len(calls) == 6


@pytest.mark.parametrize("change", [{"seed": 1}, {"views": 4}, {"images": 5}, {"blocks": 99}, {"more": 1}])
def test_features_of_another_run_are_computed_again(change, parts, caplog):
    cache = fill(parts)
    cache.marker.write_text(json.dumps(json.loads(cache.marker.read_text()) | change))
    assert cache.count_blocks() == 0 and "computed again" in caplog.text
    assert fill(parts).count_blocks() == 3


def test_a_shortened_file_is_computed_again(parts):
    cache = fill(parts)
    before = cache.rows.copy()
    os.truncate(cache.path, 100)
    assert cache.count_blocks() == 0
    np.testing.assert_array_equal(fill(parts).rows, before)


def test_a_damaged_marker_is_refused(parts):
    cache = fill(parts)
    cache.marker.write_text('{"blocks": -1}')
    with pytest.raises(InputError, match=r"features\.json.*computed again"):
        cache.count_blocks()


def test_unreadable_images_are_listed(parts):
    cache, encoder, images = parts
    read = images.__getitems__

    class Broken:
        readers = 0

        def batches(self, indices, size, workers):
            for start in range(0, len(indices), size):
                batch = read([int(i) for i in indices[start : start + size] if i not in (12, 20)])
                yield replace(batch, failed=[(i, "x") for i in indices[start : start + size] if i in (12, 20)])

    cache.fill(encoder, Broken(), VIEWS, CPU)
    batch = cache.opened().samples().__getitems__([11, 12, 13, 20])
    assert batch.sample.tolist() == [11, 13] and len(batch.stack) == 2
    assert batch.failed == [(each, "could not be read when its features were computed") for each in (12, 20)]


def test_features_that_are_not_finite_are_refused(parts):
    cache, encoder, images = parts
    encoder.backbone.layers[0].weight.data.fill_(float("nan"))
    with pytest.raises(InputError, match="NaN or infinite"):
        cache.fill(encoder, images, VIEWS, CPU)


def test_a_full_disk_is_noticed_before_anything_is_computed(parts, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(InputError, match=r"cached_views=3: .* MiB free; use fewer"):
        fill(parts)
    assert not parts[0].path.exists()


def test_other_processes_wait_for_the_first(parts, monkeypatch):
    cache = parts[0]
    monkeypatch.setattr(feature_cache, "PATIENCE", 0.3)
    with pytest.raises(LostProcessError, match="no features for"):
        cache.opened()


def test_neighbors_are_the_nearest_other_images():
    draw = np.random.default_rng(3)
    rows = draw.standard_normal((300, 4, 6)).astype(np.float32)
    rows[7] = rows[8] = rows[9]  # copies
    rows[20] = np.nan
    unit = rows / np.linalg.norm(rows.astype(float), axis=2, keepdims=True)
    means = unit.mean(1)
    cosines = means @ means.T / np.outer(*[np.linalg.norm(means, axis=1)] * 2)
    np.fill_diagonal(cosines, -2)
    cosines[:, 20] = -2
    found = nearest_images(rows, 5)
    for row in {*range(300)} - {20}:
        assert row not in found[row] and 20 not in found[row] and len(set(found[row])) == 5
        np.testing.assert_allclose(np.sort(cosines[row][found[row]]), np.sort(cosines[row])[-5:], atol=1e-6)
    with pytest.raises(InputError, match="neighbors=299: there are 299 readable training images"):
        nearest_images(rows, 299)


def test_neighbors_are_computed_once_and_deleted_with_the_features(parts, monkeypatch):
    cache = parts[0]
    cache.n_neighbors = 2
    assert fill(parts).neighbors.shape == (20, 2)
    expected = torch.from_numpy(nearest_images(cache.rows, 2))
    assert torch.equal(cache.neighbors, expected)
    monkeypatch.setattr(feature_cache, "nearest_images", None)
    assert torch.equal(fill(parts).neighbors, expected)
    cache.delete()
    assert not list(cache.path.parent.iterdir())


def test_other_processes_wait_for_the_neighbors_too(parts, monkeypatch):
    cache = fill(parts)
    cache.n_neighbors = 2
    monkeypatch.setattr(feature_cache, "PATIENCE", 0.3)
    with pytest.raises(LostProcessError, match="neighbors.npy: not written"):
        cache.opened()
