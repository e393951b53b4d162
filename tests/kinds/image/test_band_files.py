"""TIFF and .npy files of many channels, made by tifffile and NumPy, and what is wrong with some."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from coulomb.kinds.image import band_files
from coulomb.kinds.image.decode import decode, read_bands, read_header
from coulomb.kinds.image.picture import CorruptImage

tifffile = pytest.importorskip("tifffile")
DRAW = np.random.default_rng(0)
NODATA = (42113, 2, 0, "-9999", True)


def deep(*shape, dtype=np.uint16):
    return DRAW.integers(0, 9999, shape).astype(dtype)


def tiff(values, **options):
    file = io.BytesIO()
    tifffile.imwrite(file, values, **options)
    return file.getvalue()


def npy(values, save=np.save):
    file = io.BytesIO()
    save(file, values)
    return file.getvalue()


def last(values):
    return np.moveaxis(values, 0, -1)


CONTIG = {"photometric": "minisblack", "planarconfig": "contig"}
SEPARATE = {"photometric": "minisblack", "planarconfig": "separate"}
HWC, CHW, RGBN = deep(20, 18, 13), deep(13, 20, 18), (deep(20, 18, 4) % 256).astype(np.uint8)
FILES = {
    "contiguous, deflated": (tiff(HWC, **CONTIG, compression="zlib"), HWC),
    "planes": (tiff(CHW, **SEPARATE), last(CHW)),
    "big endian": (tiff(CHW, **SEPARATE, byteorder=">"), last(CHW)),
    "BigTIFF, tiles": (tiff(deep_tiles := deep(5, 32, 32), **SEPARATE, bigtiff=True, tile=(16, 16)), last(deep_tiles)),
    "pages": (tiff(CHW), last(CHW)),
    "pages without description": (tiff(CHW, metadata=None), last(CHW)),
    "ImageJ channels": (tiff(CHW, imagej=True, metadata={"axes": "CYX"}), last(CHW)),
    "OME channels": (tiff(CHW, ome=True, metadata={"axes": "CYX"}), last(CHW)),
    "floats": (tiff(CHW.astype(np.float32) - 5000, **SEPARATE), last(CHW).astype(np.float32) - 5000),
    "doubles": (tiff(HWC / 7, **CONTIG), (HWC / 7).astype(np.float32)),
    "signed": (tiff(HWC.astype(np.int16) - 5000, **CONTIG), HWC.astype(np.float32) - 5000),
    "four, not alpha": (tiff(RGBN, photometric="rgb", extrasamples=["unspecified"]), RGBN),
    "five bytes": (tiff(np.dstack([RGBN, RGBN[..., 0]]), photometric="rgb"), np.dstack([RGBN, RGBN[..., 0]])),
    "two": (tiff(HWC[..., :2], **CONTIG), HWC[..., :2]),
    "three that are no colors": (tiff(HWC[..., :3], **CONTIG), HWC[..., :3]),
    ".npy, channels last": (npy(HWC), HWC),
    ".npy, channels first": (npy(CHW), last(CHW)),
    ".npz": (npy(HWC, np.savez_compressed), HWC),
}


@pytest.mark.parametrize("name", FILES)
def test_all_channels_with_their_values(name, tmp_path):
    data, expected = FILES[name]
    path = tmp_path / f"a{name.partition(',')[0] if name.startswith('.') else '.tif'}"
    path.write_bytes(data)
    for each in (data, path):
        picture, aspect = decode(each, "a")
        header = read_header(each, "a")
        assert picture.dtype == expected.dtype
        assert np.array_equal(picture, expected)
        assert (header.height, header.width, header.channels) == picture.shape
        assert header.depth == picture.dtype.name
        assert header.bands
        assert aspect == picture.shape[1] / picture.shape[0]
        assert np.array_equal(read_bands(each, "a"), picture)


def test_what_pillow_reads_stays_as_it_was():
    for photo, mode in ((tiff(RGBN), "RGBA"), (tiff(RGBN[..., :3]), "RGB"), (tiff(HWC[..., 0]), "I;16")):
        header = read_header(photo, "a")
        assert (header.mode, header.bands) == (mode, False)
        expected = Image.open(io.BytesIO(photo))
        if mode != "RGBA":
            assert np.array_equal(decode(photo, "a")[0].squeeze(), np.asarray(expected))
    assert read_bands(tiff(RGBN), "a").shape == (20, 18, 4)  # with --bands, alpha is a channel
    halved = tiff(HWC[..., :3], photometric="rgb")
    assert read_header(halved, "a").mode == "RGB;16"
    assert decode(halved, "a")[0].dtype == np.uint8
    assert np.array_equal(read_bands(halved, "a"), HWC[..., :3])


def test_pages_of_eight_bits_are_read_as_before_and_counted():
    pages = (CHW[:5] % 256).astype(np.uint8)
    data = tiff(pages, metadata=None)
    assert np.array_equal(decode(data, "a")[0][..., 0], pages[0])
    assert read_header(data, "a").pages == 5
    assert np.array_equal(read_bands(data, "a"), last(pages))


def test_overviews_are_no_pages():
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(HWC[..., 0], metadata=None)
        writer.write(HWC[::2, ::2, 0], metadata=None, subfiletype=1)
    assert read_header(file.getvalue(), "a").channels == 1
    assert np.array_equal(decode(file.getvalue(), "a")[0][..., 0], HWC[..., 0])


def test_no_data_is_missing():
    values = HWC.astype(np.int16)
    values[:3] = -9999
    picture, _ = decode(tiff(values, **CONTIG, extratags=[NODATA]), "a")
    assert np.isnan(picture[:3]).all()
    assert np.array_equal(picture[3:], values[3:].astype(np.float32))
    unreadable = (42113, 2, 0, "none", True)
    assert np.isfinite(decode(tiff(values, **CONTIG, extratags=[unreadable]), "a")[0]).all()


WRONG = {
    "slices": (tiff(CHW, imagej=True, metadata={"axes": "ZYX"}), "a stack of 13 slices, which is not one image"),
    "slices of channels": (tiff(deep(4, 3, 20, 18), imagej=True, metadata={"axes": "ZCYX"}), "a stack of 4 slices"),
    "time": (tiff(CHW, ome=True, metadata={"axes": "TYX"}), "a stack of 13 time points"),
    "pages of channels": (tiff(deep(3, 20, 18, 5), **CONTIG), "a stack of"),
    "truncated": (tiff(HWC, **CONTIG)[:-50], "truncated"),
    "truncated, deflated": (tiff(deep(40, 40, 13), **CONTIG, compression="zlib")[:-500], "truncated"),
    "mixed axes": (npy(deep(20, 20, 17)), r"one image is \[H, W\], \[H, W, C\] or \[C, H, W\]"),
    "objects": (npy(np.array([[None] * 4] * 4, dtype=object)), "an array of object"),
    "text": (npy(np.full((4, 4), "a")), "an array of <U1"),
    "cut .npy": (npy(HWC)[:-9], "ValueError|cannot reshape|read|EOF"),
    "complex": (tiff((HWC[..., :5] * 1j).astype(np.complex64), **CONTIG), "supported are"),
    "float colors out of range": (npy(HWC[..., :3] / 7), r"--bands 1,2,3, which measures the range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_cannot_be_read_are_corrupt_with_a_reason(name):
    data, reason = WRONG[name]
    with pytest.raises(CorruptImage, match=reason):
        decode(data, "a")


def test_too_many_pixels_are_refused_before_they_are_read(monkeypatch):
    data = tiff(HWC, **CONTIG)
    monkeypatch.setattr(band_files, "MOST_BYTES", HWC.nbytes - 1)
    monkeypatch.setattr(band_files, "as_stored", lambda raw: pytest.fail("was read"))
    with pytest.raises(CorruptImage, match="GiB of values, more than .*; cut it into tiles"):
        decode(data, "a")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(CorruptImage, match="more than 100 pixels"):
        decode(data, "a")


def test_a_codec_that_is_missing_is_named(monkeypatch):
    data = bytearray(tiff(HWC, **CONTIG, compression="zlib"))
    place = data.index(b"\x03\x01\x03\x00\x01\x00\x00\x00\x08\x00")  # the tag Compression = deflate
    for codec, reason in (
        (5, "is compressed by LZW, which needs another library: pip install imagecodecs"),
        (999, "999"),
    ):
        data[place + 8 : place + 10] = codec.to_bytes(2, "little")
        with pytest.raises(CorruptImage, match=reason):
            decode(bytes(data), "a")


def test_without_tifffile_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(CorruptImage, match=r"pip install 'coulomb\[bands\]'"):
        decode(tiff(HWC, **CONTIG), "a")
    assert decode(npy(HWC), "a")[0].shape == HWC.shape
