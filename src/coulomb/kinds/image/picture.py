"""What a decoded image is: its array, its header, and the error of one that cannot be decoded."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from coulomb.kinds.kind import UnreadableCell

Picture = npt.NDArray[Any]  # [H, W, C] uint8, uint16 or float32; in [0, 1], except for bands


class CorruptImage(UnreadableCell):
    """An image that cannot be decoded, with its ``item_id`` and the ``reason``. It is skipped, logged and counted."""


@dataclass(frozen=True)
class Header:
    """Properties of an image that are known before its pixels are decoded.

    Attributes:
        width: in pixels, after EXIF orientation.
        height: in pixels, after EXIF orientation.
        mode: Pillow's mode for files; ``uint8×3`` and the like for arrays.
        channels: channels of the array that :meth:`Source.image` returns.
        depth: type of that array: "uint8", "uint16" or "float32".
        transparent: whether the image has transparency, which is composited over white.
        bands: whether the image has bands, see `coulomb.kinds.image.bands`: other than 1 or 3 channels, or channels that are
            not declared as colors.
        pages: pages of the file, of which the first is read.
    """

    width: int
    height: int
    mode: str
    channels: int
    depth: str
    transparent: bool = False
    bands: bool = False
    pages: int = 1


def array_header(image: Picture) -> Header:
    """Returns the header of a decoded [H, W, C] array."""
    height, width, channels = image.shape
    mode = f"{image.dtype.name}×{channels}"
    return Header(width, height, mode, channels, image.dtype.name, bands=channels not in (1, 3))
