"""Decodes images to arrays [H, W, C], and resizes these to square canvases.

`coulomb.kinds.image.pixels` says how the modes of Pillow are converted. Of an animation the first frame is used. A
truncated file is corrupt (Pillow's LOAD_TRUNCATED_IMAGES stays off), and so is one with more than Pillow's MAX_IMAGE_PIXELS
(89 million) pixels.
HEIC is supported if ``pillow-heif`` is installed.
"""

import functools
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from coulomb.ground.errors import InputError
from coulomb.ground.outages import is_outage, unavailable
from coulomb.kinds.image import band_files
from coulomb.kinds.image.picture import CorruptImage, Header, Picture
from coulomb.kinds.image.pixels import (
    GRAY,
    checked_unit_range,
    eight_bits,
    formats,
    has_gray_palette,
    is_transparent,
    pixels,
    to_channels,
    upright,
    upright_size,
)

# HEIC, the format of iPhone photos, needs another library.
HEIC_EXTENSIONS = frozenset({".heic", ".heif", ".hif"})
HEIC_HINT = "HEIC needs another library: pip install pillow-heif"
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}


@functools.cache
def image_extensions() -> frozenset[str]:
    """Returns the file extensions (lower case, with the dot) of the supported formats."""
    allowed = set(formats()) | {"MPO"}
    return frozenset(ext for ext, name in Image.registered_extensions().items() if name in allowed)


def decode(data: bytes | Path, item_id: str, at_least: int | None = None) -> tuple[Picture, float]:
    """Decodes an image to an array [H, W, C]; also returns its original width/height.

    Args:
        data: the encoded bytes, or the file that holds them.
        item_id: name of the image in errors.
        at_least: a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size as long as both sides keep 2·``at_least`` pixels,
            for images that will be resized to ``at_least``. A photo of 12 megapixels then decodes several times faster.

    Raises:
        CorruptImage: the image cannot be decoded.
    """
    with reasons(item_id):
        found = _described(data)
        if found is not None and not found.photo:
            return _in_unit_range(band_files.read(data, found), found), found.width / found.height
    with reasons(item_id), open_image(data) as image:
        width, height = upright_size(image)
        if at_least is not None:
            image.draft(None, (2 * at_least, 2 * at_least))
        return pixels(upright(image)), width / height


def read_header(data: bytes | Path, item_id: str) -> Header:
    """Returns size and mode of an encoded image without decoding its pixels. Raises :class:`CorruptImage`."""
    with reasons(item_id):
        found = _described(data)
        if found is not None and not found.photo:
            return found.header
    with reasons(item_id), open_image(data, header_only=True) as image:
        width, height = upright_size(image)
        mode = image.mode
        channels, depth = 1, "uint8"
        if mode == "F":
            depth = "float32"
        elif mode == "I" or mode.startswith("I;16"):
            depth = "uint16"
        elif not (mode in GRAY or (mode == "P" and has_gray_palette(image))):
            channels = 3
        pages = 1 if found is None else found.pages
        if found is not None and mode in ("RGB", "RGBA") and found.dtype.itemsize > 1:
            mode += ";16"  # Pillow keeps 8 of the 16 bits
        return Header(width, height, mode, channels, depth, is_transparent(image), pages=pages)


def read_bands(data: bytes | Path, item_id: str) -> Picture:
    """Returns all channels [H, W, C] of an image, of a TIFF or .npy file with their stored values. Raises `CorruptImage`."""
    with reasons(item_id):
        found = _described(data)
        if found is not None:
            if found.photo and found.channels == 1 and found.pages > 1:  # named as bands, the pages are channels
                found = found._replace(channels=found.pages)
            return band_files.read(data, found)
    return decode(data, item_id)[0]


def _described(data: bytes | Path) -> band_files.BandFile | None:
    """Returns what a file of bands holds; None for all other files, and for those that only Pillow understands."""
    if isinstance(data, Path) and data.suffix.lower() in band_files.SUFFIXES:
        regular_file(data)
    try:
        return band_files.describe(data)
    except (OSError, ValueError):
        raise
    except Exception:  # a damaged TIFF directory: Pillow has the message
        return None


def _in_unit_range(picture: Picture, found: band_files.BandFile) -> Picture:
    """Returns a picture of bands as it is, and one of 1 or 3 channels if it has the range of photos."""
    if picture.dtype != np.float32 or found.channels not in (1, 3) or not found.array:
        return picture
    try:
        return checked_unit_range(picture)
    except ValueError as error:
        every = ",".join(map(str, range(1, found.channels + 1)))
        raise ValueError(f"{error}, or give --bands {every}, which measures the range") from None


def from_pil(image: Image.Image, item_id: str) -> Picture:
    """Converts an open Pillow image to an array [H, W, C] by the rules of `decode`."""
    with reasons(item_id):
        return pixels(upright(image))


def open_image(data: bytes | Path, header_only: bool = False) -> Image.Image:
    """Opens an image; a file is read at once, or as far as needed for its header."""
    if isinstance(data, Path):
        with regular_file(data).open("rb") as file:
            raw = file.read(12 if header_only else -1)
    else:
        raw = data
    if not raw:
        raise ValueError("the file is empty")
    if raw[4:8] == b"ftyp" and raw[8:12] in _HEIC_BRANDS and "HEIF" not in formats():
        raise ValueError(HEIC_HINT)
    return Image.open(data if header_only and isinstance(data, Path) else io.BytesIO(raw), formats=formats())


def regular_file(path: Path) -> Path:
    """Returns ``path``; raises ValueError unless it is a regular file, because reading a pipe or a device would block."""
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError("a folder; pass it on its own, not in a list of images")
    raise ValueError("not a regular file" if path.exists() else "no such file")


@contextmanager
def reasons(item_id: str) -> Iterator[None]:
    """Context that converts any exception of a decoder, and the warning of a decompression bomb, to :class:`CorruptImage`.

    Raises:
        DataUnavailableError: a disk, the network or this process fails, so that the image may be intact.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about metadata that does not affect the pixels
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and is_outage(error):
            raise unavailable(item_id, error) from None
        raise CorruptImage(item_id, _reason(error)) from None


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image in a supported format"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return f"more than {Image.MAX_IMAGE_PIXELS} pixels, which is refused as a decompression bomb"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error) if type(error) in (ValueError, OSError) else f"{type(error).__name__}: {error}"


def to_canvas(picture: Picture, size: int, channels: int, dtype: str) -> tuple[np.ndarray, bool]:
    """Resizes the whole image to a square canvas [S, S, C], ignoring its aspect ratio, which the views restore later.

    Pillow's antialiased bilinear filter is used; an image that already has the size is not resampled.

    Args:
        picture: [H, W, c] uint8, uint16 or float32 in [0, 1].
        size: S in pixels.
        channels: C, see `to_channels`.
        dtype: "uint8", or "float32" in [0, 1] (uint8 values are divided by 255, uint16 by 65535).

    Returns:
        The canvas, and whether an image with more than 8 bits per channel was rounded to 8, by `eight_bits` and before it
        is resized, so that it has the pixels of its version with 8 bits.
    """
    if picture.ndim != 3 or picture.dtype not in (np.uint8, np.uint16, np.float32):
        raise InputError(
            f"a source returned {picture.dtype} {list(picture.shape)}; images must be [H, W, C] uint8, uint16 or float32"
        )
    if dtype == "uint8":
        return resize(to_channels(eight_bits(picture), channels), size), picture.dtype != np.uint8
    picture = to_channels(picture, channels)
    if picture.dtype == np.uint16:
        picture = picture.astype(np.float32) / np.float32(65535)
    canvas = resize(picture, size)
    return canvas.astype(np.float32) / np.float32(255) if canvas.dtype == np.uint8 else canvas, False


def resize(picture: Picture, size: int) -> Picture:
    """Returns the whole image resized to [S, S, C] by Pillow's antialiased bilinear filter, in its own type."""
    if picture.shape[:2] == (size, size):
        return picture
    # Pillow resizes three channels of bytes at once, and floats one channel at a time.
    at_once = picture.dtype == np.uint8 and picture.shape[2] == 3
    planes = [picture] if at_once else [picture[..., channel] for channel in range(picture.shape[2])]
    resized = [
        np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize((size, size), Image.Resampling.BILINEAR))
        for plane in planes
    ]
    if at_once:
        return resized[0]
    canvas = np.stack(resized, axis=2)
    return canvas if canvas.dtype == np.uint8 else np.clip(canvas, 0, 1)  # filter weights sum to 1 up to rounding only
