"""Cells of a column on a page: texts, pictures in one sprite sheet, or only the numbers of their rows."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.ground.reading import MIB, Arrays, open_arrays
from coulomb.report.collect import clean
from coulomb.report.gallery import Sheet, sprite_sheet

T = TypeVar("T")
MAX_EXPANDED = 256 * MIB  # of samples.npz
THUMBNAIL = 64  # pixels
MAX_CELLS = 10_000  # previews of a column

Preview = tuple[str | None, bytes | None]  # text, JPEG bytes; one of both None


@dataclass(frozen=True)
class Cell:
    """A cell on the page: a text, a picture by its place in the sprite sheet of its column, or only the number of its row.

    ``width`` and ``height`` are those of the picture, as parts of its square in the sheet.
    """

    row: int
    text: str | None = None
    picture: int | None = None
    width: float = 1.0
    height: float = 1.0


def read_arrays(path: Path, read: Callable[[Arrays], T], without: str, problems: list[str]) -> T | None:
    """Returns what ``read`` makes of the arrays in ``samples.npz``; None if the file does not exist or is damaged.

    ``problems`` then receives a sentence; ``without`` says what a page lacks without the file.
    """
    if not path.is_file():
        problems.append(f"samples.npz does not exist (yet): no {without}.")
        return None
    try:
        with open_arrays(path, most=MAX_EXPANDED) as stored:
            return read(stored)
    except (InputError, KeyError, ValueError, TypeError, IndexError) as error:
        problems.append(f"samples.npz cannot be read: {clean(str(error))}")
        return None


def integers(stored: Arrays, name: str, size: int | None = None, low: int = 0, high: int | None = None) -> np.ndarray:
    """Reads whole numbers [n] from ``low`` to ``high``, int64; raises `InputError` for anything else."""
    values = stored[name]
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer) or (size is not None and len(values) != size):
        raise InputError(f"{name} has an unexpected structure.")
    if len(values) and (int(values.min()) < low or (high is not None and int(values.max()) > high)):
        raise InputError(f"{name} has values out of range.")
    return values.astype(np.int64)


def read_previews(stored: Arrays, side: int) -> dict[int, Preview]:
    """Returns the previews of a column; empty for columns of vectors."""
    if f"shown_{side}" not in stored:
        return {}
    places = integers(stored, f"shown_{side}")[:MAX_CELLS].tolist()
    if f"texts_{side}" in stored:
        texts = stored[f"texts_{side}"]
        return {place: (clean(str(text)), None) for place, text in zip(places, texts[: len(places)], strict=True)}
    if f"pictures_{side}" in stored and f"ends_{side}" in stored:
        ends = integers(stored, f"ends_{side}")[:MAX_CELLS].tolist()
        data = stored[f"pictures_{side}"].astype(np.uint8).tobytes()
        starts = [0, *ends[:-1]]
        return {
            place: (None, data[start:end])
            for place, start, end in zip(places, starts, ends[: len(places)], strict=True)
        }
    return {}


class Previews:
    """The cells of a column; those that are shown as pictures are collected for a sprite sheet.

    Args:
        rows: the row in the table of each distinct cell.
        places: its place among the held-out rows.
        previews: by place.
    """

    def __init__(self, rows: np.ndarray, places: np.ndarray, previews: Mapping[int, Preview]) -> None:
        self.rows, self.places, self.previews = rows, places, previews
        self.thumbnails: list[np.ndarray] = []
        self.known: dict[int, Cell] = {}

    def cell(self, number: int, *, picture: bool = True) -> Cell:
        """Returns a distinct cell; without ``picture`` only its text."""
        row, place = int(self.rows[number]), int(self.places[number])
        text, data = self.previews.get(place, (None, None))
        if not picture or data is None:
            return Cell(row, text)
        if place not in self.known:
            made = _thumbnail(data)
            if made is None:
                return Cell(row, "unreadable picture")
            pixels, width, height = made
            self.known[place] = Cell(row, None, len(self.thumbnails), width, height)
            self.thumbnails.append(pixels)
        return replace(self.known[place], row=row)

    def sheet(self) -> Sheet | None:
        """Returns the pictures as one; None if there are none."""
        return sprite_sheet(np.stack(self.thumbnails)) if self.thumbnails else None


def _thumbnail(data: bytes) -> tuple[np.ndarray, float, float] | None:
    """Returns uint8 [64, 64, 3], the picture in the corner of a gray square, and its share of the width and of the height."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as opened:
            if opened.width * opened.height > 4_000_000:
                return None
            picture = opened.convert("RGB")
    except Exception:  # Pillow raises many kinds for damaged files
        return None
    scale = THUMBNAIL / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    square = Image.new("RGB", (THUMBNAIL, THUMBNAIL), (128, 128, 128))
    square.paste(picture.resize(size, Image.Resampling.LANCZOS))
    return np.asarray(square), size[0] / THUMBNAIL, size[1] / THUMBNAIL
