"""The bands of data sets: found, measured on the training images, the same for all images."""

import re

import numpy as np
import pytest

from band_cases import write_tiles
from coulomb.ground.errors import InputError
from coulomb.kinds.image.bands import Bands
from coulomb.tables import image_samples, open_source
from coulomb.tables.bands import find_bands
from coulomb.tables.check import check, inspect_images
from coulomb.tables.survey import survey
from coulomb.training.plan.preflight import preflight
from coulomb.training.plan.resolve import resolve

tifffile = pytest.importorskip("tifffile")


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    return write_tiles(tmp_path_factory.mktemp("tiles"), 12)


def found(data, chosen=None, rows=None):
    source = open_source(data)
    rows = np.arange(len(source)) if rows is None else rows
    return find_bands(source, rows, survey(source), chosen, 0)


def test_ranges_are_of_the_training_images_alone(tiles):
    rows = np.arange(0, 24, 2)
    bands, notes, _ = found(tiles, rows=rows)
    source = open_source(tiles)
    values = np.stack([source.image(int(row)) for row in rows]).reshape(-1, 6).astype(np.float64)
    low, high = np.percentile(values, (0.1, 99.9), axis=0)
    assert np.allclose(bands.low, low, rtol=1e-6)
    assert np.allclose(bands.high, high, rtol=1e-6)
    assert len(notes) == 1


def test_photos_have_no_bands_unless_they_are_named():
    assert found("digits") is None
    gray, color = np.zeros((4, 9, 9), np.uint8), np.zeros((4, 9, 9, 3), np.uint8)
    assert found(gray) is None
    assert found(color) is None
    assert found(color, (3, 1)).bands == Bands(3, (3, 1))
    assert found(np.zeros((4, 9, 9, 5), np.uint8)).bands == Bands(5, (1, 2, 3, 4, 5))
    with pytest.raises(InputError, match="bands=4: the images have 3 channels"):
        found(color, (4,))


def test_floats_of_any_range_and_integers_of_any_type_are_bands():
    draw = np.random.default_rng(0)
    for values in (
        draw.normal(0, 1e4, (6, 5, 12, 12)),
        draw.integers(-99, 99, (6, 12, 12, 5)),
        draw.random((6, 2, 9, 9)) < 0.5,
    ):
        source = open_source(values)
        made = found(values)
        canvas = image_samples(source, 12, made.bands.count, dtype="float32", bands=made.bands)
        batch = next(canvas.batches(np.arange(6), 6))
        assert len(batch) == 6
        assert 0 <= batch.stack.canvas.min() <= batch.stack.canvas.max() <= 1
    with pytest.raises(InputError, match="float pixels range"):
        open_source(draw.normal(0, 1, (6, 12, 12, 3)))


def test_images_with_other_channels_or_depth_are_counted_and_named(tiles, tmp_path):
    write_tiles(tmp_path / "few", 11)
    odd = tmp_path / "few" / "across"
    tifffile.imwrite(odd / "z4.tif", np.ones((4, 24, 24), np.uint16), photometric="minisblack", planarconfig="separate")
    tifffile.imwrite(odd / "z8.tif", np.ones((6, 24, 24), np.uint8), photometric="minisblack", planarconfig="separate")
    result, text = preflight({"data": str(tmp_path / "few"), "max_corrupt": 0.5}, progress=False)
    reasons = {entry["id"]: entry["reason"] for entry in result["corrupt"]}
    assert reasons == {
        "across/z4.tif": "has 4 channels, and the training images have 6",
        "across/z8.tif": "its values are uint8, and the training images have more than 8 bits per channel",
    }
    assert result["training"]["refused"] is None
    assert "bands      6 bands, each scaled to [0, 1] from its percentiles 0.1 and 99.9" in text
    assert "pictures show bands 1, 2, 3 as red, green, blue" in text
    assert not any("outside the range" in finding for finding in result["findings"])  # by choice of the percentiles
    assert re.search(
        r"\n {11}0\.\d\d% of the values in \d+ training images are outside the range and become 0 or 1\.", text
    )
    assert result["data"]["canvas"]["bands"]["count"] == 6
    assert "--encoder lite0 adapts them" in text
    result, _ = preflight({"data": str(tmp_path / "few")}, progress=False)
    assert "2 of 24 images cannot be read" in result["training"]["refused"]


def test_the_option_and_what_views_leave_out_are_said(tiles):
    options = {"data": str(tiles), "bands": "5,1-2", "views": "natural", "epochs": 1}
    plan = resolve(options)
    assert plan.prepared.facts.channels == 3
    _, text = preflight(options | {"bands": "5,6"}, progress=False)
    assert "bands      bands 5, 6 of 6, each scaled" in text
    assert "views      saturation, hue, gray left out: needs three channels" in text
    with pytest.raises(InputError, match="channels=3: .* has 6 bands"):
        resolve({"data": str(tiles), "channels": 3})
    with pytest.raises(InputError, match="bands=7: the images have 6 channels"):
        resolve({"data": str(tiles), "bands": "7"})


def test_missing_values_and_pages_are_counted(tmp_path):
    draw = np.random.default_rng(0)
    for number in range(8):
        values = draw.random((5, 20, 20)).astype(np.float32)
        values[:, :number] = np.nan
        np.save(tmp_path / f"{number}.npy", values)
    result, _ = preflight({"data": str(tmp_path), "test_fraction": 0.25, "epochs": 1}, progress=False)
    assert "7 images have values that are missing" in " ".join(result["findings"])
    assert "of the values in 6 training images are missing" in " ".join(result["findings"])
    pages = tmp_path / "pages"
    pages.mkdir()
    for number in range(3):
        tifffile.imwrite(pages / f"{number}.tif", draw.integers(0, 255, (5, 20, 20)).astype(np.uint8), metadata=None)
    source = open_source(pages)
    result = check(source, inspection=inspect_images(source))
    assert any(
        finding.startswith("3 files have several pages, of which the first is read") for finding in result["findings"]
    )
    assert found(pages, (1, 2, 3, 4, 5)).bands.count == 5


def test_numpy_files_are_images_where_there_are_no_others(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "1.npy", np.zeros((9, 9, 4), np.uint16))
        np.savez(tmp_path / name / "2.npz", np.zeros((9, 9, 4), np.uint16))
    source = open_source(tmp_path)
    assert [source.item_id(row) for row in range(4)] == ["a/1.npy", "a/2.npz", "b/1.npy", "b/2.npz"]
    assert source.labels.tolist() == [0, 0, 1, 1]
    assert source.image(3).shape == (9, 9, 4)
    tifffile.imwrite(tmp_path / "a" / "photo.tif", np.zeros((9, 9, 3), np.uint8))
    assert len(open_source(tmp_path)) == 1
    assert "4 files without an image extension were skipped." in open_source(tmp_path).notes
