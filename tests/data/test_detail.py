"""Images that were enlarged are recognised by what their spectrum lacks."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.data import ArraySource, check
from coulomb.data.survey import detail_finding, detail_side, measure_detail
from page_blocks import ROOT

SHARED = ROOT.parent / "shared" / "data"
KINDS = {name: Image.Resampling[name.upper()] for name in ("nearest", "bilinear", "bicubic", "lanczos")}


def natural(seed, side):
    """Noise with amplitudes of 1/f, as photos have."""
    draw = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    f[0, 0] = 1
    grey = np.fft.ifft2(np.fft.fft2(draw.normal(size=(side, side))) / f).real
    grey = (grey - grey.mean()) / grey.std() * 50 + 128
    return np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[..., None], 3, 2)


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
    found = measured([natural(seed, side) for seed in range(12)])
    assert (found["detail"], found["side"], found["enlarged"]) == (side, side, 0)
    assert detail_finding(found, side) is None


@pytest.mark.parametrize("quality", [None, 90])
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize(("small", "large"), [(32, 128), (48, 96), (64, 224)])
def test_enlarged_images(small, large, kind, quality):
    found = measured([enlarged(natural(seed, small), large, kind, quality) for seed in range(12)])
    if kind == Image.Resampling.NEAREST and large % small:
        return  # blocks of unequal sizes are not recognised
    assert found["enlarged"] >= 0.9
    assert 0.8 * small <= found["detail"] <= 1.45 * small


def test_the_finding_names_the_option():
    pictures = [enlarged(natural(seed, 32), 128, Image.Resampling.BICUBIC) for seed in range(8)]
    (finding,) = [said for said in check(ArraySource(np.stack(pictures)))["findings"] if "enlarged" in said]
    assert "100% of 8 sampled images of 128 px" in finding and finding.endswith("--image-size 32.")
    assert check(ArraySource(np.stack(pictures)), image_size=32)["findings"] == []


def test_small_constant_and_other_images_are_left_alone():
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
        found = measured([enlarged(np.asarray(photo), 128, kind, 90) for photo in photos("cifar10-jpeg-train")])
        assert 24 <= found["detail"] <= 36
