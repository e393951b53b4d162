"""Decodes images to arrays [H, W, C], and resizes these to square canvases.

| Pillow mode | result |
|---|---|
| 1, L | uint8, 1 channel |
| LA, or L with a transparent value | uint8, 1 channel, composited over white |
| P | uint8, 1 channel if the palette is grey, else 3; composited over white if it has transparency |
| RGB, RGBX, CMYK, YCbCr, LAB, HSV | uint8, 3 channels |
| RGBA | uint8, 3 channels, composited over white |
| I;16, and I within 0…65535 | uint16, 1 channel |
| F within [0, 1] | float32, 1 channel |

EXIF orientation is applied. Of an animation the first frame is used. A truncated file is corrupt (Pillow's
LOAD_TRUNCATED_IMAGES stays off), and so is one with more than Pillow's MAX_IMAGE_PIXELS (89 million) pixels.
HEIC is supported if ``pillow-heif`` is installed.
"""

import functools
import io
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from coulomb.data.source import CorruptImage, Header, Picture, Source
from coulomb.errors import InputError

# Only formats that Pillow decodes itself: EPS, for example, would run Ghostscript on an untrusted program.
_FORMATS = "JPEG PNG WEBP GIF TIFF BMP PPM JPEG2000 AVIF TGA ICO PCX DDS SGI HEIF".split()
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
        pass  # HEIC files are reported with HEIC_HINT
    else:
        register_heif_opener()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


@functools.cache
def image_extensions() -> frozenset[str]:
    """Returns the file extensions (lower case, with the dot) of the supported formats."""
    allowed = set(_formats()) | {"MPO"}
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
    with reasons(item_id), _open(data) as image:
        width, height = _upright_size(image)
        if at_least is not None:
            image.draft(None, (2 * at_least, 2 * at_least))
        return _pixels(_upright(image)), width / height


def read_header(data: bytes | Path, item_id: str) -> Header:
    """Returns size and mode of an encoded image without decoding its pixels. Raises :class:`CorruptImage`."""
    with reasons(item_id), _open(data, header_only=True) as image:
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
    """Converts an open Pillow image to an array [H, W, C] by the rules of `decode`."""
    with reasons(item_id):
        return _pixels(_upright(image))


def _open(data: bytes | Path, header_only: bool = False) -> Image.Image:
    """Opens an image; a file is read at once, or as far as needed for its header."""
    if isinstance(data, Path):
        with regular_file(data).open("rb") as file:
            raw = file.read(12 if header_only else -1)
    else:
        raw = data
    if not raw:
        raise ValueError("the file is empty")
    if raw[4:8] == b"ftyp" and raw[8:12] in _HEIC_BRANDS and "HEIF" not in _formats():
        raise ValueError(HEIC_HINT)
    return Image.open(data if header_only and isinstance(data, Path) else io.BytesIO(raw), formats=_formats())


def regular_file(path: Path) -> Path:
    """Returns ``path``; raises ValueError unless it is a regular file, because reading a pipe or a device would block."""
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError("a folder; pass it on its own, not in a list of images")
    raise ValueError("not a regular file" if path.exists() else "no such file")


@contextmanager
def reasons(item_id: str) -> Iterator[None]:
    """Context that converts any exception of a decoder, and the warning of a decompression bomb, to :class:`CorruptImage`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about metadata that does not affect the pixels
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (CorruptImage, MemoryError):
        raise
    except Exception as error:
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


def _orientation(image: Image.Image) -> int:
    if image.format == "JPEG" and "exif" not in image.info:
        return 1  # the most common case, without parsing
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # unreadable metadata: no orientation
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
        raise ValueError(f"integer pixels range from {low} to {high}; supported are 0 to 65535")
    return values.astype(np.uint16)[..., None]


def checked_unit_range(values: Picture) -> Picture:
    """Returns ``values``; raises ValueError unless all lie in [0, 1], because guessing a scale would change the data."""
    low, high = float(values.min()), float(values.max())  # NaN propagates through both
    if not (low >= 0.0 and high <= 1.0):
        raise ValueError(f"float pixels range from {low:g} to {high:g}; scale them to [0, 1] first")
    return values


class EncodedSource(Source):
    """A :class:`Source` of encoded images (JPEG, PNG, …); subclasses implement :meth:`encoded`."""

    @abstractmethod
    def encoded(self, index: int) -> bytes | Path:
        """Returns the encoded bytes of an image, or the file that holds them. Raises :class:`CorruptImage`."""

    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image, a JPEG possibly decoded smaller (sides ≥ 2·``at_least``), and its original width/height."""
        return decode(self.encoded(index), self.item_id(index), at_least=at_least)

    def header(self, index: int) -> Header:
        """Returns size and mode without decoding the pixels."""
        return read_header(self.encoded(index), self.item_id(index))

    def content(self, index: int) -> bytes | Path:
        """Returns the encoded bytes, or the file that holds them."""
        data = self.encoded(index)
        with reasons(self.item_id(index)):
            return regular_file(data) if isinstance(data, Path) else data


def to_channels(picture: Picture, channels: int) -> Picture:
    """Converts [H, W, c] to [H, W, ``channels``]: grey is repeated, colour becomes luma (ITU-R BT.601, as Pillow's "L").

    Raises:
        InputError: any other change of the number of channels; no channel is dropped or made up.
    """
    here = picture.shape[2]
    if here == channels:
        return picture
    if here == 1 and channels == 3:
        return np.repeat(picture, 3, axis=2)
    if here == 3 and channels == 1:
        if picture.dtype.kind == "f":
            return picture @ np.array([[0.299], [0.587], [0.114]], dtype=np.float32)
        weighted = picture.astype(np.uint64) @ np.array([[19595], [38470], [7471]], dtype=np.uint64)
        return ((weighted + 0x8000) >> 16).astype(picture.dtype)
    raise InputError(f"the image has {here} channels instead of {channels}; set channels={here} or convert the images")


def eight_bits(picture: Picture) -> Picture:
    """Returns an image as uint8: uint16 divided by 257, floats times 255, rounded."""
    if picture.dtype == np.uint8:
        return picture
    scaled = picture * np.float32(255) if picture.dtype.kind == "f" else picture / 257
    return np.round(scaled).astype(np.uint8)


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
        return _resize(to_channels(eight_bits(picture), channels), size), picture.dtype != np.uint8
    picture = to_channels(picture, channels)
    if picture.dtype == np.uint16:
        picture = picture.astype(np.float32) / np.float32(65535)
    canvas = _resize(picture, size)
    return canvas.astype(np.float32) / np.float32(255) if canvas.dtype == np.uint8 else canvas, False


def _resize(picture: Picture, size: int) -> Picture:
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
