import dataclasses
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, check, image_samples, open_source, suggest_image_size, survey
from coulomb.tables.survey import detail_finding, detail_side, measure_detail
from page_blocks import ROOT


def test_sizes_modes_and_channels(tmp_path):
    for name, mode, size in [("a", "L", (10, 20)), ("b", "L", (30, 20)), ("c", "RGBA", (50, 60))]:
        Image.new(mode, size).save(tmp_path / f"{name}.png")
    (tmp_path / "d.png").write_bytes(b"torn")
    result = survey(open_source(tmp_path))
    assert (result.count, result.sampled) == (4, 4)
    assert (result.width, result.height, result.short_side) == (30, 20, 20)
    assert (result.width_range, result.height_range) == ((10, 50), (20, 60))
    assert result.modes == {"L": 2, "RGBA": 1}
    assert (result.channels, result.dtype, result.transparent, result.uniform) == (3, "uint8", 1, False)
    assert list(result.unreadable) == ["d.png"]
    json.dumps(result.to_dict())
    (tmp_path / "c.png").unlink()
    assert survey(open_source(tmp_path)).channels == 1


def test_survey_uses_the_upright_size(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    result = survey(open_source(tmp_path))
    assert (result.width, result.height) == (20, 40)


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


class SomeDeep(ArraySource):
    """Gray images, some of which have 16 bits."""

    def __init__(self, deep):
        super().__init__(np.zeros((len(deep), 4, 4), np.uint8))
        self.deep = deep

    def image(self, index):
        return np.zeros((4, 4, 1), np.uint16 if self.deep[index] else np.uint8)


@pytest.mark.parametrize("where", [0, 7, 39])
def test_one_image_with_16_bits_does_not_decide_for_the_others(where):
    deep = np.arange(40) == where
    assert survey(SomeDeep(deep)).dtype == image_samples(SomeDeep(deep)).kind.dtype == "uint8"
    assert survey(SomeDeep(~deep)).dtype == image_samples(SomeDeep(~deep)).kind.dtype == "float32"


@pytest.mark.parametrize(("deep", "wanted"), [(280, "uint8"), (300, "uint8"), (301, "float32"), (320, "float32")])
def test_the_majority_does_not_depend_on_the_sample(deep, wanted):
    source = SomeDeep(np.random.default_rng(0).permutation(600) < deep)
    assert {survey(source, sample=100, seed=seed).dtype for seed in range(20)} == {wanted}


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
def test_suggested_image_size(side, largest, size):
    result = survey(open_source(np.zeros((1, side, side), np.uint8)))
    assert suggest_image_size(result, largest) == size


def test_one_large_image_among_icons():
    result = dataclasses.replace(survey(open_source("digits")), width_range=(8, 300))
    assert suggest_image_size(result) == 8  # not all sides are at most 16 pixels, so the median is used


SHARED = ROOT.parent / "shared" / "data"
KINDS = {name: Image.Resampling[name.upper()] for name in ("nearest", "bilinear", "bicubic", "lanczos")}


def natural(seed, side):
    """Noise with the 1/f amplitudes of photos."""
    draw = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    f[0, 0] = 1
    gray = np.fft.ifft2(np.fft.fft2(draw.normal(size=(side, side))) / f).real
    gray = (gray - gray.mean()) / gray.std() * 50 + 128
    return np.repeat(np.clip(gray, 0, 255).astype(np.uint8)[..., None], 3, 2)


def enlarged(picture, side, kind, quality=None):
    image = Image.fromarray(picture).resize((side, side), kind)
    if quality is not None:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        image = Image.open(file)
    return np.asarray(image)


def measured(pictures):
    return measure_detail(ArraySource(np.stack(pictures)), list(range(len(pictures))))


@pytest.mark.parametrize("side", [32, 64, 96, 200])
def test_images_with_detail_side_their_own_size(side):
    result = measured([natural(seed, side) for seed in range(12)])
    assert (result["detail"], result["side"], result["enlarged"]) == (side, side, 0)
    assert detail_finding(result, side) is None


@pytest.mark.parametrize("quality", [None, 90])
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize(("small", "large"), [(32, 128), (48, 96), (64, 224)])
def test_enlarged_images(small, large, kind, quality):
    result = measured([enlarged(natural(seed, small), large, kind, quality) for seed in range(12)])
    if kind == Image.Resampling.NEAREST and large % small:
        return  # blocks of unequal sizes are not recognized
    assert result["enlarged"] >= 0.9
    assert 0.8 * small <= result["detail"] <= 1.45 * small


def test_enlarged_finding_has_the_option():
    pictures = [enlarged(natural(seed, 32), 128, Image.Resampling.BICUBIC) for seed in range(8)]
    (finding,) = [finding for finding in check(ArraySource(np.stack(pictures)))["findings"] if "enlarged" in finding]
    assert "100% of 8 sampled images of 128 px" in finding and finding.endswith("--image-size 32.")
    assert check(ArraySource(np.stack(pictures)), image_size=32)["findings"] == []


def test_small_and_constant_images_are_not_enlarged():
    assert measured([np.zeros((16, 16, 3), np.uint8)] * 4) is None
    assert detail_side(np.full((64, 64, 3), 9, np.uint8)) == 64
    assert detail_side(np.random.default_rng(0).random((48, 64, 5), dtype=np.float32)) == 48


@pytest.mark.skipif(not (SHARED / "rooms.parquet").exists(), reason="needs ../shared/data")
def test_photos():
    def photos(name):
        rows = pq.ParquetFile(SHARED / f"{name}.parquet").read_row_group(0, columns=["image"])["image"].to_pylist()[:40]
        return [Image.open(io.BytesIO(row["bytes"])).convert("RGB") for row in rows]

    assert measured([np.asarray(photo.resize((128, 128))) for photo in photos("rooms")])["enlarged"] < 0.1
    for kind in KINDS.values():
        result = measured([enlarged(np.asarray(photo), 128, kind, 90) for photo in photos("cifar10-jpeg-train")])
        assert 24 <= result["detail"] <= 36


def test_the_smallest_size_to_recommend_is_kept():
    enlarged = {"sampled": 64, "enlarged": 1.0, "side": 224.0, "detail": 32.0}
    assert "--image-size 32." in detail_finding(enlarged, 128)
    assert "--image-size 96." in detail_finding(enlarged, 128, smallest=96)
    assert detail_finding(enlarged, 96, smallest=96) is None
