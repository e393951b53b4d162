import io

import numpy as np
from PIL import Image

from coulomb.kinds.image.false_color import displayable
from coulomb.kinds.image.pixels import eight_bits
from coulomb.kinds.image.thumbnail import make_thumbnail

DRAW = np.random.default_rng(0)


def test_photos_keep_their_values():
    for photo in (
        DRAW.integers(0, 256, (9, 9, 3)).astype(np.uint8),
        DRAW.integers(0, 65536, (9, 9, 1)).astype(np.uint16),
        DRAW.random((9, 9, 3)).astype(np.float32),
    ):
        assert np.array_equal(displayable(photo), eight_bits(photo))
    many = DRAW.integers(0, 256, (9, 9, 5)).astype(np.uint8)
    assert np.array_equal(displayable(many), many[..., :3])


def test_three_bands_are_stretched_one_by_one():
    bands = DRAW.normal(0, 1, (50, 40, 6)) * [1, 100, 1e4, 1, 1, 1] + 5e4
    bands[0, :, 1] = np.nan
    shown = displayable(bands.astype(np.float32))
    assert shown.shape == (50, 40, 3)
    for k in range(3):
        values = bands[..., k].astype(np.float32).astype(np.float64)
        low, high = np.nanpercentile(values, (2, 98))
        expected = np.clip((values - low) / (high - low) * 255, 0, 255)
        known = np.isfinite(values)
        assert np.abs(shown[..., k][known] - expected[known]).max() <= 0.5 + 1e-6
        assert (shown[..., k][~known] == 0).all()


def test_nothing_to_stretch():
    assert (displayable(np.full((4, 4, 6), np.nan, np.float32)) == 0).all()
    assert (displayable(np.full((4, 4, 2), 9000, np.uint16)) == 0).all()
    sparse = np.zeros((40, 40, 4), np.uint16)
    sparse[3, 3] = 777  # both percentiles are 0
    assert displayable(sparse)[3, 3].tolist() == [255] * 3


def test_thumbnail_of_satellite_values():
    bands = (DRAW.random((80, 60, 13)) * 900 + 100).astype(np.uint16)  # /257 would be black
    shown = np.asarray(Image.open(io.BytesIO(make_thumbnail(bands, 40))))
    assert shown.shape == (40, 30, 3)
    assert shown.mean() > 80
