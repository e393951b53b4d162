"""The pixels of an opened image as an array [H, W, C], by Pillow's mode.

| Pillow mode | result |
|---|---|
| 1, L | uint8, 1 channel |
| LA, or L with a transparent value | uint8, 1 channel, composited over white |
| P | uint8, 1 channel if the palette is gray, else 3; composited over white if it has transparency |
| RGB, RGBX, CMYK, YCbCr, LAB, HSV | uint8, 3 channels |
| RGBA | uint8, 3 channels, composited over white |
| I;16, and I within 0…65535 | uint16, 1 channel |
| F within [0, 1] | float32, 1 channel |

EXIF orientation is applied. The programs that `coulomb.export` writes contain the source of these functions, so that they read
files as `coulomb.models.image_encoder.ImageEncoder.encode` does; they may therefore use NumPy and Pillow only.
"""

import functools

import numpy as np
from PIL import ExifTags, Image, ImageOps

from coulomb.ground.errors import InputError
from coulomb.kinds.image.picture import Picture

# Only formats that Pillow decodes itself: EPS, for example, would run Ghostscript on an untrusted program.
FORMATS = tuple("JPEG PNG WEBP GIF TIFF BMP PPM JPEG2000 AVIF TGA ICO PCX DDS SGI HEIF".split())
ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
GRAY = ("1", "L", "LA", "La")


@functools.cache
def formats() -> tuple[str, ...]:
    """Returns the formats that can be decoded here; HEIC, the format of iPhone photos, only with ``pillow-heif``."""
    Image.init()
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        pass
    else:
        register_heif_opener()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def orientation(image: Image.Image) -> int:
    """Returns the EXIF orientation, 1 if there is none."""
    if image.format == "JPEG" and "exif" not in image.info:
        return 1  # the most common case, without parsing
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # unreadable metadata: no orientation
        return 1


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Returns width and height after EXIF orientation."""
    width, height = image.size
    return (height, width) if orientation(image) in (5, 6, 7, 8) else (width, height)


def upright(image: Image.Image) -> Image.Image:
    """Returns the image after EXIF orientation."""
    return ImageOps.exif_transpose(image) if orientation(image) in range(2, 9) else image


def is_transparent(image: Image.Image) -> bool:
    """Returns True if the image has an alpha channel or a transparent color."""
    return image.mode in ALPHA or (image.mode in ("1", "L", "P", "RGB") and "transparency" in image.info)


def has_gray_palette(image: Image.Image) -> bool:
    """Returns True if all colors of the palette are gray."""
    red_green_blue = np.asarray(image.getpalette("RGB") or [], dtype=np.uint8).reshape(-1, 3)
    return bool((red_green_blue == red_green_blue[:, :1]).all())


def pixels(image: Image.Image) -> Picture:
    """Returns the pixels [H, W, C] of an upright image; raises ValueError for values out of range."""
    mode = image.mode
    if mode == "I" or mode.startswith("I;16"):
        return sixteen_bits(np.asarray(image))
    if mode == "F":
        return checked_unit_range(np.asarray(image)[..., None].astype(np.float32))
    target = "L" if mode in GRAY or (mode == "P" and has_gray_palette(image)) else "RGB"
    if is_transparent(image):
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, (255, 255, 255, 255)), rgba)
    values = np.array(image if image.mode == target else image.convert(target))
    return values[..., None] if target == "L" else values


def sixteen_bits(values: Picture) -> Picture:
    """Returns integers [H, W] as uint16 [H, W, 1]; raises ValueError unless all lie in 0 to 65535."""
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


def to_channels(picture: Picture, channels: int) -> Picture:
    """Converts [H, W, c] to [H, W, ``channels``]: gray is repeated, color becomes luma (ITU-R BT.601, as Pillow's "L").

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
