"""Images as a kind of column: whole images resized to square canvases, or prepared at their original resolution."""

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.decode import to_canvas
from coulomb.kinds.image.picture import Picture
from coulomb.kinds.image.pixels import eight_bits, to_channels
from coulomb.kinds.image.thumbnail import make_thumbnail
from coulomb.kinds.kind import Cell
from coulomb.kinds.stack import Stack

PREVIEW = 96  # pixels


class Pictures(Protocol):
    """The cells of a column of images; `coulomb.tables.Source` implements it."""

    def item_id(self, index: int) -> str:
        """Returns the name of an image."""
        ...

    def image(self, index: int) -> Picture:
        """Returns an image [H, W, C] at full size; raises `CorruptImage`."""
        ...

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns an image, possibly decoded smaller (sides ≥ ``at_least``), and its original width/height."""
        ...

    def bands(self, index: int) -> Picture:
        """Returns all channels [H, W, C] of an image with their stored values; raises `CorruptImage`."""
        ...


@dataclass
class Canvases(Stack):
    """Images of one size.

    Attributes:
        canvas: [B, C, S, S] uint8, or float32 in [0, 1].
        aspect: float32 [B], original width/height.

    >>> stack = Canvases(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.ones(4))
    >>> len(stack)
    4
    """

    on_host = ("aspect",)

    canvas: Tensor
    aspect: Tensor


class ImageCell(NamedTuple):
    """An image as its kind stacks it, and its original width/height."""

    pixels: Any
    aspect: float = 1.0


@dataclass(frozen=True)
class Image:
    """The whole image resized to a square canvas; a JPEG may be decoded at a fraction of its size.

    Args:
        size: side of the canvas in pixels.
        channels: 1 or 3 for files, the number that they have for arrays.
        dtype: "uint8" or "float32".
        views: made of the canvases.
        bands: of images that are no photos, which channels and how their values become [0, 1].
    """

    size: int = 32
    channels: int = 3
    dtype: str = "uint8"
    views: Any = None
    bands: Bands | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or self.channels < 1:
            raise InputError(f"size={self.size}, channels={self.channels}: both must be ≥ 1")
        if self.dtype not in ("uint8", "float32"):
            raise InputError(f"dtype={self.dtype!r}: must be 'uint8' or 'float32'")
        if self.bands is not None and len(self.bands.chosen) != self.channels:
            raise InputError(
                f"channels={self.channels}: the images have {len(self.bands.chosen)} bands; leave channels out, or choose "
                "with --bands"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of a canvas."""
        return self.channels * self.size**2 * (1 if self.dtype == "uint8" else 4)

    def read(self, cells: Pictures, row: int) -> Cell:
        """Returns the canvas [S, S, C] of an image; raises `CorruptImage`."""
        if self.bands is None:
            picture, aspect = cells.picture(row, at_least=self.size)
        else:
            picture = self.bands.apply(cells.bands(row), cells.item_id(row))
            aspect = picture.shape[1] / picture.shape[0]
        with _named(cells, row):
            canvas, rounded = to_canvas(picture, self.size, self.channels, self.dtype)
        return Cell(ImageCell(canvas, aspect), rounded)

    def stack(self, values: Sequence[ImageCell]) -> Canvases:
        """Returns the canvases as one tensor [B, C, S, S]."""
        canvases = np.empty((len(values), self.size, self.size, self.channels), dtype=self.dtype)
        for row, value in enumerate(values):
            canvases[row] = value.pixels
        aspects = np.array([value.aspect for value in values], dtype=np.float32)
        return Canvases(
            torch.from_numpy(np.ascontiguousarray(canvases.transpose(0, 3, 1, 2))), torch.from_numpy(aspects)
        )

    def blank(self, count: int) -> Canvases:
        """Returns black canvases."""
        dtype = torch.uint8 if self.dtype == "uint8" else torch.float32
        shape = (count, self.channels, self.size, self.size)
        return Canvases(torch.zeros(shape, dtype=dtype), torch.ones(count))

    def preview(self, value: ImageCell) -> str:
        """Returns a small image as HTML."""
        return _tag(value.pixels)


@dataclass(frozen=True)
class OriginalImage:
    """The image as ``prepare`` makes it of the decoded photo at its original resolution, 8 bits per channel.

    JPEG files are decoded at full size: decoding them smaller, as for `Image`, changes pixels. One photo per process is in
    memory at a time. Images with more bits are rounded to 8 first.

    Args:
        channels: C that ``prepare`` takes; gray is repeated, color becomes luma.
        prepare: [H, W, C] uint8 → [C, S, S], uint8 or float32 in [0, 1].
        views: made of the prepared images.

    >>> kind = OriginalImage(3, lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1) / 255)
    >>> kind.channels
    3
    """

    channels: int
    prepare: Callable[[Picture], Tensor]
    views: Any = None
    nbytes: None = None  # known to ``prepare`` alone

    def read(self, cells: Pictures, row: int) -> Cell:
        """Returns the prepared image [C, S, S]; raises `CorruptImage`."""
        picture = cells.image(row)
        with _named(cells, row):
            prepared = self.prepare(eight_bits(to_channels(picture, self.channels)))
        return Cell(ImageCell(prepared), rounded=picture.dtype != np.uint8)

    def stack(self, values: Sequence[ImageCell]) -> Canvases:
        """Returns the images as one tensor [B, C, S, S]."""
        images = torch.stack([value.pixels for value in values]) if values else torch.empty(0)
        return Canvases(images, torch.ones(len(values)))

    def blank(self, count: int) -> Canvases:
        """Prepared images are not cached."""
        raise NotImplementedError

    def preview(self, value: ImageCell) -> str:
        """Returns a small image as HTML."""
        return _tag(value.pixels.permute(1, 2, 0).numpy())


@contextmanager
def _named(cells: Pictures, row: int) -> Iterator[None]:
    """Context that adds the name of the image to errors."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{visible(cells.item_id(row))}: {error}") from None


def _tag(pixels: Picture) -> str:
    """Returns an image [H, W, C] as HTML."""
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(make_thumbnail(pixels, PREVIEW)).decode()}">'
