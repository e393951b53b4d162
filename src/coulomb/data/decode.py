"""Encoded bytes → [H, W, C] arrays, with every conversion spelled out.

| Pillow mode | becomes |
|---|---|
| 1, L | uint8, 1 channel |
| LA, or L with a transparent value | laid over white, uint8, 1 channel |
| P | uint8, 1 channel where the palette is grey, else 3; laid over white where it has transparency |
| RGB, RGBX, CMYK, YCbCr, LAB, HSV | uint8, 3 channels |
| RGBA | laid over white, uint8, 3 channels |
| I;16, and I within 0…65535 | uint16, 1 channel |
| F within [0, 1] | float32, 1 channel |

EXIF orientation is applied; of an animation the first frame counts; a file that ends early is corrupt (Pillow's
LOAD_TRUNCATED_IMAGES stays off), and so is one with more than Pillow's MAX_IMAGE_PIXELS (89 million) pixels.
HEIC is read where ``pillow-heif`` is installed.
"""

import functools
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from coulomb.data.source import CorruptImage, Header, Picture

# Only formats that Pillow decodes itself: EPS, for one, would start Ghostscript on a stranger's program.
_FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "GIF",
    "TIFF",
    "BMP",
    "PPM",
    "JPEG2000",
    "AVIF",
    "TGA",
    "ICO",
    "PCX",
    "DDS",
    "SGI",
    "HEIF",
)
# HEIC, the format of iPhone photos, needs another library.
HEIC_EXTENSIONS = frozenset({".heic", ".heif", ".hif"})
HEIC_HINT = "HEIC needs another library: pip install pillow-heif"
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}

_ALPHA = {"LA", "La", "PA", "RGBA", "RGBa"}
_GREY = {"1", "L", "LA", "La"}


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        pass  # files are named with HEIC_HINT
    else:
        register_heif_opener()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@functools.cache
def image_extensions() -> frozenset[str]:
    """Extensions (lower case, with the dot) of the formats that are decoded."""
    allowed = set(_formats()) | {"MPO"}
    return frozenset(ext for ext, name in Image.registered_extensions().items() if name in allowed)


def decode(data: bytes | Path, item_id: str, at_least: int | None = None) -> tuple[Picture, float]:
    """The picture as [H, W, C] and its true width/height.

    ``at_least``: a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size as long as both sides keep 2·``at_least`` pixels
    (for pictures that will be resized to ``at_least`` anyway; a twelve-megapixel photo then decodes several times faster).
    Raises :class:`CorruptImage` with the reason.
    """
    with _reasons(item_id), _opened(data) as image:
        width, height = _upright_size(image)
        if at_least is not None:
            image.draft(None, (2 * at_least, 2 * at_least))
        return _pixels(_upright(image)), width / height


def read_header(data: bytes | Path, item_id: str) -> Header:
    """Size and mode from the first bytes of an encoded picture. Raises :class:`CorruptImage`."""
    with _reasons(item_id), _opened(data) as image:
        width, height = _upright_size(image)
        mode = image.mode
        channels, depth = 1, "uint8"
        if mode == "F":
            depth = "float32"
        elif mode == "I" or mode.startswith("I;16"):
            depth = "uint16"
        elif not (mode in _GREY or (mode == "P" and _has_grey_palette(image))):
            channels = 3
        return Header(width, height, mode, channels, depth, _is_transparent(image))


def from_pil(image: Image.Image, item_id: str) -> Picture:
    """An open Pillow image (of a user's data set) as [H, W, C], by the same rules."""
    with _reasons(item_id):
        return _pixels(_upright(image))


def _opened(data: bytes | Path) -> Image.Image:
    raw = data.read_bytes() if isinstance(data, Path) else data
    if not raw:
        raise ValueError("the file is empty")
    if raw[4:8] == b"ftyp" and raw[8:12] in _HEIC_BRANDS and "HEIF" not in _formats():
        raise ValueError(HEIC_HINT)
    return Image.open(io.BytesIO(raw), formats=_formats())


@contextmanager
def _reasons(item_id: str) -> Iterator[None]:
    """Turns whatever a decoder raises into a :class:`CorruptImage`, and its bomb warning into an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # metadata that Pillow grumbles about says nothing on the pixels
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (CorruptImage, MemoryError):
        raise
    except Exception as error:
        raise CorruptImage(item_id, _reason(error)) from None


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image in a format that is decoded here"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return f"more than {Image.MAX_IMAGE_PIXELS} pixels: refused as a decompression bomb"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return str(error) if type(error) in (ValueError, OSError) else f"{type(error).__name__}: {error}"


def _orientation(image: Image.Image) -> int:
    if image.format == "JPEG" and "exif" not in image.info:
        return 1  # by far the most common case; saves parsing
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # unreadable metadata names no orientation
        return 1


def _upright_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if _orientation(image) in {5, 6, 7, 8} else (width, height)


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if _orientation(image) in range(2, 9) else image


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in _ALPHA or (image.mode in {"1", "L", "P", "RGB"} and "transparency" in image.info)


def _has_grey_palette(image: Image.Image) -> bool:
    red_green_blue = np.asarray(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
    return bool((red_green_blue == red_green_blue[:, :1]).all())


def _pixels(image: Image.Image) -> Picture:
    mode = image.mode
    if mode == "I" or mode.startswith("I;16"):
        return _sixteen_bits(np.asarray(image))
    if mode == "F":
        return checked_unit_range(np.asarray(image)[..., None].astype(np.float32))
    target = "L" if mode in _GREY or (mode == "P" and _has_grey_palette(image)) else "RGB"
    if _is_transparent(image):
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, (255, 255, 255, 255)), rgba)
    pixels = np.array(image if image.mode == target else image.convert(target))
    return pixels[..., None] if target == "L" else pixels


def _sixteen_bits(values: Picture) -> Picture:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise ValueError(f"integer pixels from {low} to {high}; 0 to 65535 can be read")
    return values.astype(np.uint16)[..., None]


def checked_unit_range(values: Picture) -> Picture:
    """``values``, if every one is a number in [0, 1]; ValueError otherwise. Guessing a scale would change the data."""
    low, high = float(values.min()), float(values.max())  # NaN propagates through both
    if not (low >= 0.0 and high <= 1.0):
        raise ValueError(f"float pixels from {low:g} to {high:g}; scale them to [0, 1] first")
    return values
