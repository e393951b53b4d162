"""Bands: ranges by percentiles, scaling, missing values, stored forms."""

import json

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.kinds.image.bands import STORED_BANDS, Bands, measure_bands, parse_bands
from coulomb.kinds.image.canvas import STORED_CANVAS, Canvas
from coulomb.kinds.image.picture import CorruptImage

DEEP = Bands(3, (3, 1), (0.0, -1.0), (10.0, 1.0), (0.5, 0.25))


def test_scaling_is_linear_clipped_and_fills_missing_values():
    picture = np.array([[[-1, 99, 5], [0, 99, 20], [np.nan, 99, -3], [1, 99, np.inf]]], np.float32)
    expected = [[[0.5, 0.0], [1.0, 0.5], [0.0, 0.25], [0.5, 1.0]]]
    scaled = DEEP.apply(picture, "a")
    assert scaled.dtype == np.float32
    assert np.array_equal(scaled, np.array(expected, np.float32))


def test_eight_bits_are_chosen_and_kept():
    picture = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(Bands(4, (4, 2)).apply(picture, "a"), picture[..., [3, 1]])


@pytest.mark.parametrize(
    ("bands", "picture", "reason"),
    [
        (DEEP, np.zeros((2, 2, 4), np.uint16), "a: has 4 channels, and the training images have 3"),
        (DEEP, np.zeros((2, 2, 3), np.uint8), "its values are uint8, and the training images have more than 8 bits"),
        (Bands(3, (1,)), np.zeros((2, 2, 3), np.uint16), "its values are uint16, and the training images have 8 bits"),
        (DEEP, np.full((2, 2, 3), np.nan, np.float32), "holds no values"),
    ],
)
def test_other_images_are_not_converted(bands, picture, reason):
    with pytest.raises(CorruptImage, match=reason):
        bands.apply(picture, "a")


def images_of(draw, count=20):
    """Band 1 normal with hot pixels, band 2 constant, band 3 sparse, band 4 with missing values."""
    for _ in range(count):
        picture = np.stack([draw.normal(100, 10, (40, 40)), *np.zeros((3, 40, 40))], 2)
        picture[0, 0, 0] = 60_000
        picture[..., 1] = 7
        picture[1, 1, 2] = 500
        picture[..., 3] = draw.random((40, 40))
        picture[:10, :, 3] = np.nan
        yield picture.astype(np.float32)


def test_ranges_are_robust_and_what_was_found_is_said():
    draw = np.random.default_rng(0)
    bands, notes, findings = measure_bands(images_of(draw), Bands(4, (1, 2, 3, 4)), draw, 20)
    every = np.stack(list(images_of(np.random.default_rng(0)))).reshape(-1, 4).astype(np.float64)
    low, high = np.percentile(every[:, 0], (0.1, 99.9))
    assert bands.low[0] == pytest.approx(low, rel=1e-6)
    assert bands.high[0] == pytest.approx(high, rel=1e-6)
    assert bands.high[0] < 200  # not the hot pixels
    assert (bands.low[1], bands.high[1]) == (7, 14)
    assert (bands.low[2], bands.high[2]) == (0, 500)  # both percentiles are 0
    assert bands.fill[3] == pytest.approx(0.5, abs=0.01)
    assert "6.25% of the values in 20 training images are missing" in notes[0]
    assert "in 20 of these images" in notes[0]
    assert notes[1].startswith("band 2 (7): constant")
    outside = sum(((every[:, k] < bands.low[k]) | (every[:, k] > bands.high[k])).sum() for k in range(4))
    assert notes[2].startswith(f"{outside / every.size:.2%} of the values")
    assert findings == notes[:2]  # the percentiles leave such a share outside of any images


@pytest.mark.parametrize(("bright", "worth"), [(0.09, False), (0.11, True)])
def test_images_whose_values_are_mostly_outside_are_worth_attention(bright, worth):
    """All together have few values outside, and one has them all: a cloud that loses its contrast."""
    draw = np.random.default_rng(0)
    pictures = [draw.random((20, 20, 2)).astype(np.float32) for _ in range(200)]
    pictures[7][..., 1].flat[: round(400 * bright)] = 50 + draw.random(round(400 * bright))
    _, notes, findings = measure_bands(pictures, Bands(2, (1, 2)), draw, 200)
    assert len(notes) == 1 and "are outside the range" in notes[0]
    assert findings == (notes if worth else ())
    assert ("in 1 image more than 10% of a band" in notes[0]) == worth


def test_a_band_without_values_is_named():
    pictures = [np.stack([np.ones((4, 4)), np.full((4, 4), np.nan)], 2).astype(np.float32)]
    with pytest.raises(InputError, match="band 2 has no values in 1 training images; leave it out"):
        measure_bands(pictures, Bands(2, (1, 2)), np.random.default_rng(0), 1)


def test_the_option():
    assert parse_bands("4,3,2") == (4, 3, 2)
    assert parse_bands("1-3, 8") == (1, 2, 3, 8)
    for wrong in ("", "0", "3-1", "a", "1,,2", "-2", "1-"):
        with pytest.raises(InputError, match="bands="):
            parse_bands(wrong)
    with pytest.raises(InputError, match="names a band twice"):
        parse_bands("1-3,2")


def test_stored_with_the_canvas_and_checked():
    for bands in (None, DEEP, Bands(2, (1, 2))):
        stored = json.loads(json.dumps(Canvas(32, "float32", bands).to_dict()))
        assert STORED_CANVAS.fits(stored)
        assert Canvas.from_dict(stored) == Canvas(32, "float32", bands)
    assert Canvas(32, "uint8").to_dict() == {"size": 32, "dtype": "uint8"}  # as runs on photos always wrote it
    good = DEEP.to_dict()
    wrong = ({"low": [1]}, {"high": [0, 0]}, {"chosen": [4, 1]}, {"chosen": []}, {"count": -1}, {"fill": ["a", "b"]})
    for damage in wrong:
        assert not STORED_BANDS.fits(good | damage), damage


def test_what_pictures_show():
    assert Bands(13, (4, 3, 2, 8)).shown == "bands 4, 3, 2 as red, green, blue"
    assert Bands(2, (1, 2)).shown == "band 1"
    assert DEEP.describe().startswith("bands 3, 1 of 3, each scaled")
