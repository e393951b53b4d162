"""The canvas: the square in which images are stored before views are made of them."""

import math
from dataclasses import dataclass
from typing import Any, Self

from coulomb.ground.reading import Shape, whole
from coulomb.kinds.image.bands import STORED_BANDS, Bands


@dataclass(frozen=True)
class Canvas:
    """How images are stored: squares of ``size`` pixels, ``dtype`` "uint8" or "float32"; of images that are no photos, which
    bands and how their values become [0, 1]."""

    size: int
    dtype: str
    bands: Bands | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes, JSON-serializable; of photos, size and dtype only."""
        stored: dict[str, Any] = {"size": self.size, "dtype": self.dtype}
        return stored if self.bands is None else stored | {"bands": self.bands.to_dict()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        bands = stored.get("bands")
        return cls(stored["size"], stored["dtype"], None if bands is None else Bands.from_dict(bands))


STORED_CANVAS = Shape(
    "an object with size, a positive whole number, dtype, uint8 or float32, and perhaps bands, as a run writes them",
    lambda value: (
        isinstance(value, dict)
        and {"size", "dtype"} <= set(value) <= {"size", "dtype", "bands"}
        and whole.fits(value["size"])
        and value["size"] > 0
        and value["dtype"] in ("uint8", "float32")
        and STORED_BANDS.fits(value.get("bands"))
    ),
)


def canvas_size(square: int | None, image_size: int) -> int:
    """Returns the side of the canvas for a network's input of ``image_size`` pixels.

    ``square`` is the side of the images if all are equal squares, else None. Images of at most twice the input are stored
    as they are; all others as `margin_canvas`.
    """
    return square if square is not None and square <= 2 * image_size else margin_canvas(image_size)


def margin_canvas(image_size: int) -> int:
    """Returns 4/3 of ``image_size``, rounded up to a multiple of 8: crops of 9/16 of the area keep full resolution."""
    return math.ceil(image_size * 4 / 3 / 8) * 8
