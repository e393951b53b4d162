import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from coulomb.data import ArraySource, open_source, suggest_image_size, survey
from coulomb.errors import InputError


def test_sizes_modes_and_channels(tmp_path):
    for name, mode, size in [("a", "L", (10, 20)), ("b", "L", (30, 20)), ("c", "RGBA", (50, 60))]:
        Image.new(mode, size).save(tmp_path / f"{name}.png")
    (tmp_path / "d.png").write_bytes(b"torn")
    found = survey(open_source(tmp_path))
    assert (found.count, found.sampled) == (4, 4)
    assert (found.width, found.height, found.short_side) == (30, 20, 20)
    assert (found.width_range, found.height_range) == ((10, 50), (20, 60))
    assert found.modes == {"L": 2, "RGBA": 1}
    assert (found.channels, found.dtype, found.transparent, found.uniform) == (3, "uint8", 1, False)
    assert list(found.unreadable) == ["d.png"]
    json.dumps(found.to_dict())
    (tmp_path / "c.png").unlink()
    assert survey(open_source(tmp_path)).channels == 1


def test_orientation_counts(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    found = survey(open_source(tmp_path))
    assert (found.width, found.height) == (20, 40)


def test_sample_is_seeded_and_bounded():
    draw = np.random.default_rng(0)

    class Mixed(ArraySource):
        sizes = draw.integers(10, 100, (1000, 2))
        read = 0

        def image(self, index):
            Mixed.read += 1
            return np.zeros((*self.sizes[index], 1), np.uint8)

    source = Mixed(np.zeros((1000, 4, 4), np.uint8))
    first = survey(source, sample=50, seed=1)
    assert Mixed.read == 50
    assert survey(source, sample=50, seed=1) == first
    assert survey(source, sample=50, seed=2) != first


def test_deep_and_many_channels():
    assert survey(open_source(np.zeros((2, 4, 4), np.uint16))).dtype == "float32"
    assert survey(open_source(np.zeros((2, 13, 32, 32), np.uint8))).channels == 13
    digits = survey(open_source("digits"))
    assert (digits.channels, digits.uniform, suggest_image_size(digits)) == (1, True, 16)


def test_nothing_readable(tmp_path):
    (tmp_path / "d.png").write_bytes(b"torn")
    with pytest.raises(InputError, match="none of 1 images can be read, e.g. d.png"):
        survey(open_source(tmp_path))


@pytest.mark.parametrize(
    ("side", "largest", "size"),
    [(8, 224, 16), (12, 224, 16),
     (16, 224, 16), (20, 224, 20), (28, 224, 28), (32, 224, 32), (39, 224, 40), (50, 224, 64), (96, 224, 96),
     (500, 224, 224), (500, 96, 96), (32, 16, 16)],
)  # fmt: skip
def test_suggested_size(side, largest, size):
    found = survey(open_source(np.zeros((1, side, side), np.uint8)))
    assert suggest_image_size(found, largest) == size


def test_one_large_image_among_icons():
    found = dataclasses.replace(survey(open_source("digits")), width_range=(8, 300))
    assert suggest_image_size(found) == 8  # no longer "all at most 16 px": the median side counts
