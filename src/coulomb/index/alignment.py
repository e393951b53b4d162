"""Whether one image is a part of another one, such as a crop of it, by the correlation of their pixels."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from PIL import Image

COARSE, FINE = 24, 64  # pixels: the longer side of the whole image
LEAST_AREA = 0.6  # of the whole image that the part covers; 10% cropped on each side leave .64
LEAST_COARSE = 0.75  # correlation at 24 pixels below which 64 are not tried
LEAST_CONTRAST = 3.0  # standard deviation in levels of 255: correlations of flat images mean nothing
CELLS = 4  # per side, in which the images are compared apart
Size = tuple[int, int]  # width, height


class Agreement(NamedTuple):
    """How well an image agrees with the most similar region of another one.

    Attributes:
        whole: correlation of all pixels and colors, −1 to 1.
        cell: the second lowest correlation in 4×4 cells of the region, −1 to 1.
    """

    whole: float
    cell: float


NONE = Agreement(0.0, 0.0)


def agreement(whole: Image.Image, part: Image.Image, sizes: tuple[Size, Size]) -> Agreement:
    """Returns how well ``part`` agrees with the region of ``whole`` that it is most similar to.

    The region has the aspect ratio of the part, any place, and at least 60% of the area. So both values are near 1 for a crop
    at any resolution, also if its brightness or contrast differs. They are 0 for images without contrast. Images that share
    only an outline, such as two coins on white, differ in some of the cells.

    Args:
        whole: an image (mode RGB), at least 64 pixels long.
        part: likewise.
        sizes: width and height of the originals of both, which have more exact aspect ratios than thumbnails.
    """
    scales = _scales(sizes, COARSE)
    if not scales:
        return NONE
    gray = whole.convert("L"), part.convert("L")
    values = [_placed(*gray, sizes, COARSE, scale)[0] for scale in scales]
    if max(values) < LEAST_COARSE:
        return NONE
    near, pixel = scales[int(np.argmax(values))] * FINE / COARSE, FINE / COARSE / max(sizes[1])
    fine = [scale for scale in _scales(sizes, FINE) if abs(scale - near) <= pixel]
    placed = [(_placed(*gray, sizes, FINE, scale), scale) for scale in fine]
    if not placed or max(placed)[0][0] <= 0:
        return NONE
    (_, (top, left)), scale = max(placed)
    shape, window = _shapes(sizes, FINE, scale)
    region = _resized(whole, shape)[top : top + window[0], left : left + window[1]]
    pattern = _resized(part, window)
    rows, columns = (np.linspace(0, side, CELLS + 1).astype(int) for side in window)
    cells = [_correlation(region[i:k, j:m], pattern[i:k, j:m]) for i, k in pairwise(rows) for j, m in pairwise(columns)]
    lowest = sorted(value for value in cells if value is not None)
    return Agreement(_correlation(region, pattern) or 0.0, lowest[min(1, len(lowest) - 1)] if lowest else 0.0)


def _scales(sizes: tuple[Size, Size], side: int) -> list[float]:
    """Scales from pixels of the part to pixels of the whole image at ``side`` pixels, in steps of a pixel."""
    (width, height), (part_width, part_height) = sizes
    unit = side / max(width, height)
    largest = min(width * unit / part_width, height * unit / part_height)
    smallest = unit * (LEAST_AREA * width * height / (part_width * part_height)) ** 0.5
    step = 1 / max(part_width, part_height)
    return [largest - number * step for number in range(max(0, int((largest - smallest) / step + 1)))]


def _shapes(sizes: tuple[Size, Size], side: int, scale: float) -> tuple[Size, Size]:
    """Height and width of the whole image at ``side`` pixels, and of the part at ``scale`` times its original size."""
    (width, height), (part_width, part_height) = sizes
    unit = side / max(width, height)
    shape = max(1, round(height * unit)), max(1, round(width * unit))
    return shape, (min(shape[0], max(1, round(part_height * scale))), min(shape[1], max(1, round(part_width * scale))))


def _placed(
    whole: Image.Image, part: Image.Image, sizes: tuple[Size, Size], side: int, scale: float
) -> tuple[float, tuple[int, int]]:
    """The largest correlation over all places, and the place: top, left."""
    shape, window = _shapes(sizes, side, scale)
    region = _resized(whole, shape)
    pattern = _resized(part, window).ravel()
    pattern -= pattern.mean()
    length, least = float(np.linalg.norm(pattern)), LEAST_CONTRAST * len(pattern) ** 0.5
    if length < least:
        return 0.0, (0, 0)
    windows = np.lib.stride_tricks.sliding_window_view(region, window)
    places = windows.shape[:2]
    squares = _sums(region**2, window) - _sums(region, window) ** 2 / len(pattern)
    deviation = np.sqrt(np.maximum(squares, 1e-6))
    found = np.where(deviation < least, 0.0, (windows.reshape(-1, len(pattern)) @ pattern) / (length * deviation))
    best = int(found.argmax())
    return float(found[best]), (best // places[1], best % places[1])


def _sums(values: np.ndarray, window: Size) -> np.ndarray:
    """Sums over all windows, from an integral image."""
    table = np.pad(values.astype(np.float64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    height, width = window
    sums: np.ndarray = (
        table[height:, width:] - table[:-height, width:] - table[height:, :-width] + table[:-height, :-width]
    )
    return sums.ravel()


def _correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    """The correlation of two arrays; 0 if only one of them is flat, None if both are."""
    first, second = first - first.mean(), second - second.mean()
    lengths = float(np.linalg.norm(first)), float(np.linalg.norm(second))
    flat = [length < LEAST_CONTRAST * first.size**0.5 for length in lengths]
    if any(flat):
        return None if all(flat) else 0.0
    return float((first * second).sum() / (lengths[0] * lengths[1]))


def _resized(image: Image.Image, shape: Size) -> np.ndarray:
    return np.asarray(image.resize(shape[::-1], Image.Resampling.BILINEAR), np.float32)
