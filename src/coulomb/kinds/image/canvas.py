"""The canvas: the square in which images are stored before views are made of them."""

import math
from dataclasses import dataclass

from coulomb.ground.reading import Shape, whole


@dataclass(frozen=True)
class Canvas:
    """How images are stored: squares of ``size`` pixels, ``dtype`` "uint8" or "float32"."""

    size: int
    dtype: str


STORED_CANVAS = Shape(
    "an object with size, a positive whole number, and dtype, uint8 or float32",
    lambda value: (
        isinstance(value, dict)
        and set(value) == {"size", "dtype"}
        and whole.fits(value["size"])
        and value["size"] > 0
        and value["dtype"] in ("uint8", "float32")
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
