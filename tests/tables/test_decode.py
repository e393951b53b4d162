import errno
import importlib.util
import io
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.kinds.image.decode import decode, image_extensions, read_header, reasons
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import check, image_samples, open_source

RAMP = np.arange(12 * 10, dtype=np.uint8).reshape(12, 10)
COLOR = np.stack([RAMP, RAMP[::-1], 255 - RAMP], axis=2)


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pixels(data: bytes | Path) -> np.ndarray:
    image, aspect = decode(data, "it")
    header = read_header(data, "it")
    # The header agrees with the decoded image.
    assert (header.height, header.width, header.channels) == image.shape
    assert header.depth == image.dtype.name
    assert aspect == image.shape[1] / image.shape[0]
    return image


def test_gray_and_color_are_exact():
    assert np.array_equal(pixels(encoded(Image.fromarray(RAMP)))[..., 0], RAMP)
    assert np.array_equal(pixels(encoded(Image.fromarray(COLOR))), COLOR)
    for kind in ("BMP", "TIFF", "PPM", "TGA"):
        assert np.array_equal(pixels(encoded(Image.fromarray(COLOR), kind)), COLOR), kind


def test_one_bit_is_black_and_white():
    image = pixels(encoded(Image.fromarray(RAMP > 60)))
    assert np.array_equal(image[..., 0], np.where(RAMP > 60, 255, 0))


@pytest.mark.parametrize("alpha", [0, 128, 255])
def test_transparency_is_composited_over_white(alpha):
    rgba = np.dstack([COLOR, np.full(RAMP.shape, alpha, np.uint8)])
    expected = COLOR * (alpha / 255) + 255 * (1 - alpha / 255)
    data = encoded(Image.fromarray(rgba))
    assert read_header(data, "it").transparent
    assert np.abs(pixels(data) - expected).max() <= 1
    la = encoded(Image.merge("LA", [Image.fromarray(RAMP), Image.fromarray(rgba[..., 3])]))
    gray = pixels(la)
    assert gray.shape == (12, 10, 1)
    assert np.abs(gray[..., 0] - (RAMP * (alpha / 255) + 255 * (1 - alpha / 255))).max() <= 1


def test_palette_gray_color_and_transparent():
    gray = Image.fromarray(RAMP)
    gray.putpalette([value for value in range(256) for _ in range(3)])
    assert gray.mode == "P"
    assert np.array_equal(pixels(encoded(gray))[..., 0], RAMP)
    color = Image.fromarray(RAMP)
    color.putpalette([part for value in range(256) for part in (value, 255 - value, 7)])
    expected = np.dstack([RAMP, 255 - RAMP, np.full_like(RAMP, 7)])
    assert np.array_equal(pixels(encoded(color)), expected)
    clear = pixels(encoded(color, transparency=5))
    assert (clear[RAMP == 5] == 255).all()
    assert np.array_equal(clear[RAMP != 5], expected[RAMP != 5])


def test_transparent_value_of_gray_png():
    image = pixels(encoded(Image.fromarray(RAMP), transparency=3))
    assert image.shape == (12, 10, 1)
    assert image[RAMP == 3].tolist() == [[255]]


def test_cmyk_becomes_rgb():
    image = pixels(encoded(Image.fromarray(COLOR).convert("CMYK"), "TIFF"))
    assert np.abs(image.astype(int) - COLOR).max() <= 1
    assert read_header(encoded(Image.fromarray(COLOR).convert("CMYK"), "TIFF"), "it").mode == "CMYK"


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_kept(kind):
    deep = (np.arange(120, dtype=np.uint16) * 541).reshape(12, 10)
    image = pixels(encoded(Image.fromarray(deep), kind))
    assert image.dtype == np.uint16
    assert np.array_equal(image[..., 0], deep)


def test_big_endian_sixteen_bits(tmp_path):
    deep = (np.arange(6, dtype=np.uint16) * 9999).reshape(2, 3)
    (tmp_path / "a.pgm").write_bytes(b"P5 3 2 65535\n" + deep.astype(">u2").tobytes())
    image, _ = decode(tmp_path / "a.pgm", "it")
    assert np.array_equal(image[..., 0], deep)


def test_float_tiff_in_unit_range_only():
    unit = np.linspace(0, 1, 120, dtype=np.float32).reshape(12, 10)
    assert np.array_equal(pixels(encoded(Image.fromarray(unit), "TIFF"))[..., 0], unit)
    with pytest.raises(CorruptImage, match=r"from 0 to 255.*scale them to \[0, 1\]"):
        decode(encoded(Image.fromarray(unit * 255), "TIFF"), "it")
    unit[3, 3] = np.nan
    with pytest.raises(CorruptImage, match="nan"):
        decode(encoded(Image.fromarray(unit), "TIFF"), "it")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = pixels(encoded(Image.fromarray(COLOR), "PNG", exif=exif))
    # EXIF orientation: stored rows and columns → upright rows and columns.
    upright = {
        1: COLOR, 2: COLOR[:, ::-1], 3: COLOR[::-1, ::-1], 4: COLOR[::-1],
        5: COLOR.transpose(1, 0, 2), 6: np.rot90(COLOR, -1), 7: COLOR[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(COLOR),
    }  # fmt: skip
    assert np.array_equal(image, upright[orientation])
    jpeg = encoded(Image.fromarray(COLOR), "JPEG", exif=exif, quality=95)
    assert pixels(jpeg).shape[:2] == ((10, 12) if orientation >= 5 else (12, 10))


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "lime", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (pixels(data) == [255, 0, 0]).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF"])
def test_truncated_file_is_corrupt(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    decode(data, "it")
    with pytest.raises(CorruptImage, match="^cut"):
        decode(data[: len(data) * 2 // 3], "cut")


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "empty"), (b"not an image at all", "not an image"), (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image")],
)
def test_error_for_items_that_are_not_images(data, reason):
    for function in (decode, read_header):
        with pytest.raises(CorruptImage, match=reason) as caught:
            function(data, "it")
        assert caught.value.item_id == "it"
        assert "0x" not in caught.value.reason  # no memory addresses: the reason depends on the file only


def test_programs_are_not_decoded():
    # Pillow would run Ghostscript for these, for any extension.
    with pytest.raises(CorruptImage, match="not an image"):
        read_header(encoded(Image.fromarray(COLOR), "EPS"), "it")
    assert not {".eps", ".ps", ".wmf", ".emf", ".pdf"} & image_extensions()
    assert {".jpg", ".jpeg", ".png", ".tif", ".webp", ".gif", ".bmp"} <= image_extensions()


def test_decompression_bomb_is_refused():
    def chunk(kind: bytes, body: bytes) -> bytes:
        import zlib

        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    for side in (10_000, 60_000):
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
        with pytest.raises(CorruptImage, match="decompression bomb"):
            decode(bomb, "it")


def test_jpeg_is_decoded_smaller_only_above_twice_the_size():
    large = Image.fromarray(np.random.default_rng(0).integers(0, 256, (403, 801, 3), dtype=np.uint8))
    data = encoded(large, "JPEG")
    small, aspect = decode(data, "it", at_least=32)
    assert aspect == 801 / 403  # of the original, not of the reduced image
    assert 64 <= min(small.shape[:2]) < 403
    same, _ = decode(data, "it", at_least=250)
    assert same.shape == (403, 801, 3)


def test_permission_and_missing(tmp_path):
    with pytest.raises(CorruptImage, match="no such file"):
        decode(tmp_path / "gone.png", "gone.png")
    with pytest.raises(CorruptImage, match=r"a\\x1b\[31m.png"):  # escape sequences in names are escaped
        decode(b"", "a\x1b[31m.png")


INSTALLED = importlib.util.find_spec("pillow_heif") is not None
# The first bytes of a HEIC file: a box of type "ftyp" with the brand "heic".
HEAD = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(40)


@pytest.mark.skipif(INSTALLED, reason="pillow-heif is installed")
def failing(code):
    def fail(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENOTCONN])
@pytest.mark.parametrize("read", [decode, read_header])
def test_a_failing_disk_is_no_corrupt_image(tmp_path, monkeypatch, code, read):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Image.fromarray(RAMP)))
    monkeypatch.setattr(Path, "open", failing(code))
    with pytest.raises(DataUnavailableError, match=r"a.png: cannot be read \(.*\); check the disk") as raised:
        read(path, "a.png")
    assert not isinstance(raised.value, CorruptImage)
    monkeypatch.setattr(Path, "open", failing(errno.EACCES))
    with pytest.raises(CorruptImage, match="a.png: permission denied"):
        read(path, "a.png")


def test_a_folder_of_which_an_image_cannot_be_read_now_stops_instead_of_skipping_it(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(encoded(Image.fromarray(RAMP)))
    source = open_source(tmp_path)
    images = image_samples(source, 8)
    right = Path.open

    def fail(path, *arguments, **options):
        return failing(errno.EIO)() if path.name == "b.png" else right(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(DataUnavailableError, match=r"b.png: cannot be read"):
        list(images.batches(range(2), 2))
    assert not images.failures


def test_an_error_of_ours_stays_what_it_is_inside_a_decoder():
    with pytest.raises(InputError, match="^in another place$") as raised, reasons("a.png"):
        raise InputError("in another place")
    assert not isinstance(raised.value, CorruptImage)


def test_heic_hint_without_the_library(tmp_path):
    (tmp_path / "IMG_1.HEIC").write_bytes(HEAD)
    with pytest.raises(InputError, match=r"1 HEIC file was skipped \(IMG_1.HEIC\).*pip install pillow-heif"):
        open_source(tmp_path)
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    assert any("pip install pillow-heif" in note for note in open_source(tmp_path).notes)
    (tmp_path / "list.csv").write_text("path\na.png\nIMG_1.HEIC\n")
    corrupt = check(open_source(tmp_path / "list.csv"))["corrupt"]
    assert corrupt == [{"id": "IMG_1.HEIC", "reason": "HEIC needs another library: pip install pillow-heif"}]


def test_heic_is_decoded_with_the_library(tmp_path):
    heif = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    pixels = np.linspace(0, 255, 64 * 96 * 3).reshape(64, 96, 3).astype(np.uint8)
    heif.register_heif_opener()
    Image.fromarray(pixels).save(tmp_path / "IMG_1.HEIC", quality=95)
    source = open_source(tmp_path)
    assert len(source) == 1 and source.notes == ()
    assert (source.header(0).width, source.header(0).height) == (96, 64)
    assert np.abs(source.image(0).astype(int) - pixels).mean() < 4


def test_a_header_does_not_read_the_whole_file(tmp_path):
    path = tmp_path / "photo.jpg"
    Image.new("RGB", (60, 40)).save(path)
    with path.open("r+b") as file:
        file.truncate(2**28)
    tracemalloc.start()
    header = read_header(path, "photo.jpg")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (header.width, header.height, header.mode) == (60, 40, "RGB")
    assert peak < 2**24
