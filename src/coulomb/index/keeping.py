"""Which of several near-copies to keep, by what their files say: resolution, format, date, quality, name; and why."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from coulomb.ground.text import natural_key
from coulomb.kinds.image.decode import open_image, reasons
from coulomb.kinds.image.picture import CorruptImage

BY_NAME = "first by name"
LOSSLESS = frozenset("PNG TIFF BMP PPM TGA SGI PCX".split())
CAMERA = frozenset("JPEG MPO HEIF".split())  # formats that cameras write
SIDE = 512  # pixels: of the part of an image that is searched for traces of an earlier compression
FREQUENCIES = [(u, v) for u in range(6) for v in range(6) if 1 <= u + v <= 5]  # of the 8×8 blocks of a JPEG file
NOISE = 0.45  # standard deviation of a coefficient from rounding pixels to 8 bits, and from a second compression
SCALES = np.geomspace(0.5, 2.0, 141)  # brightness of an edited copy
TRACE = 0.16  # of 1,920 comparisons of photos with tables that they were not compressed with, none had more than .13
FEWEST = 200  # coefficients
_STEPS = np.arange(8)
_DCT = np.sqrt(np.where(_STEPS == 0, 1, 2) / 8)[:, None] * np.cos(np.pi * _STEPS[:, None] * (2 * _STEPS + 1) / 16)


@dataclass(frozen=True)
class Facts:
    """What is known about the file of an image.

    Attributes:
        id: id of the image.
        pixels: width × height.
        format: Pillow's name; None if the file cannot be read.
        lossless: whether the format loses nothing.
        taken: when the photo was taken or last edited, by its EXIF data: "2019:07:28 12:00:00".
        quality: quality of a JPEG file, 1 to 100, estimated from its quantization tables.
        table: the quantization table of its luma, 8×8.
    """

    id: str
    pixels: int
    format: str | None = None
    lossless: bool = False
    taken: str | None = None
    quality: int | None = None
    table: tuple[int, ...] | None = None

    @property
    def format_rank(self) -> int:
        """0 for lossless formats, 1 for camera formats, 2 for others, 3 for palettes of 256 colors, 4 if unknown."""
        if self.format is None:
            return 4
        if self.lossless:
            return 0
        return 1 if self.format in CAMERA else 3 if self.format == "GIF" else 2


# Key of the sort, and what is said of the image that is ahead.
Criterion = tuple[Callable[[Facts], Any], Callable[[Facts, Facts], str]]
CRITERIA: tuple[Criterion, ...] = (
    (lambda facts: -facts.pixels, lambda best, other: "more pixels"),
    (lambda facts: facts.format_rank, lambda best, other: f"{best.format}, not {other.format or 'unreadable'}"),
    (lambda facts: facts.taken is None, lambda best, other: "has the date it was taken"),
    (lambda facts: facts.taken or "", lambda best, other: "earlier date"),
    (
        lambda facts: -(facts.quality or 0),
        lambda best, other: f"JPEG quality {best.quality}, not {other.quality or '?'}",
    ),
    (lambda facts: name_key(facts.id), lambda best, other: BY_NAME),
)


def file_facts(item_id: str, pixels: int, content: Path | None) -> Facts:
    """Reads the header of an image file; facts that cannot be read are None."""
    if content is None:
        return Facts(item_id, pixels)
    try:
        with reasons(item_id), open_image(content, header_only=True) as image:
            form = image.format or ""
            lossless = form in LOSSLESS or (form == "WEBP" and _is_lossless_webp(content))
            table = _luma_table(image)
            quality = None if table is None else _quality(table)
            return Facts(item_id, pixels, form, lossless, _date(image), quality, table)
    except CorruptImage:
        return Facts(item_id, pixels)


def ranked(
    facts: Sequence[Facts], contents: Sequence[Path | None], is_part: Callable[[int, int], bool]
) -> tuple[list[int], str]:
    """Returns the places of near-copies, the best to keep first, and why the first was chosen.

    The order is by resolution, format (without loss first), the date in the EXIF data (any before none, the earlier
    first), the quality by the quantization tables of JPEG files, and the name (the shorter first); the size in bytes says
    nothing. Of images with equal resolution, one whose pixels show the compression of another one is a copy of it, and comes
    after it, whatever its format or quality: a JPEG file saved again with more bytes, or converted to PNG. So does an
    enlarged part of another one.

    Args:
        facts: facts of each file.
        contents: the files; None for images that are not files.
        is_part: ``is_part(i, j)`` returns whether the image at place i shows only a part of that at place j.
    """
    order = sorted(range(len(facts)), key=lambda place: tuple(key(facts[place]) for key, _ in CRITERIA))
    pixels = functools.cache(lambda place: _luma(contents[place]))
    why = ""
    behind: set[int] = set()
    while True:
        first = order[0]
        behind.add(first)
        equal = [place for place in order[1:] if facts[place].pixels == facts[first].pixels and place not in behind]
        if (whole := next((place for place in equal if is_part(first, place)), None)) is not None:
            found, why = whole, f"{facts[first].id} shows a part of it"
        elif (origin := _origin(first, equal, facts, pixels)) is not None:
            found, why = origin, f"{facts[first].id} was made from it"
        else:
            return order, why or (compare(facts[first], facts[order[1]]) if order[1:] else "")
        order.remove(found)
        order.insert(0, found)


def compare(best: Facts, other: Facts) -> str:
    """Returns what the first file, which is kept, has that the second has not: "more pixels"; see `ranked`."""
    for key, say in CRITERIA:
        ours, theirs = key(best), key(other)
        if ours != theirs:
            return say(best, other) if ours < theirs else "this copy was made from it"  # by its pixels
    return BY_NAME


def _origin(
    first: int, others: list[int], facts: Sequence[Facts], pixels: Callable[[int], np.ndarray | None]
) -> int | None:
    """Returns which of the ``others`` has the compression that the pixels of the ``first`` show, or None."""
    best = facts[first]
    for place in others:
        other = facts[place]
        if other.table is None or (best.taken and not other.taken):
            continue
        coarser = best.lossless or best.table is None or sum(other.table) > sum(best.table)
        if coarser and (image := pixels(first)) is not None and trace(image, other.table) >= TRACE:
            return place
    return None


def trace(luma: np.ndarray, table: Sequence[int]) -> float:
    """Returns how clearly an image [H, W] shows that it was compressed with this table before, 0 to 1.

    The coefficients of the low frequencies of its blocks then lie near multiples of the table's steps; of a brightened
    copy, near multiples of the steps times a factor. Of the mean cosine of 2π·coefficient/step at each factor, the value is
    the maximum less the median.
    """
    height, width = (side // 8 * 8 for side in luma.shape)
    top, left = (max(0, (side - SIDE) // 16 * 8) for side in (height, width))
    part = luma[top : min(height, top + SIDE), left : min(width, left + SIDE)].astype(np.float32)
    if not part.size:
        return 0.0
    blocks = part.reshape(part.shape[0] // 8, 8, -1, 8).swapaxes(1, 2).reshape(-1, 8, 8)
    coefficients = _DCT.astype(np.float32) @ blocks @ _DCT.T.astype(np.float32)
    steps = np.array(table, np.float32).reshape(8, 8)
    values = np.concatenate([coefficients[:, u, v] for u, v in FREQUENCIES])
    step = np.repeat([steps[u, v] for u, v in FREQUENCIES], len(blocks))
    used = np.abs(values) > SCALES[0] * 0.75 * step
    values, step = values[used], step[used]
    means: list[float] = []
    for scale in SCALES:
        units = values / (scale * step)
        # Coefficients that round to 0 do so at any factor; noise hides the phase of small steps.
        weight = np.where(np.abs(units) > 0.75, np.exp(-2 * (np.pi * NOISE / (scale * step)) ** 2), 0)
        if (weight > 0).sum() >= FEWEST:
            means.append(float((weight * np.cos(2 * np.pi * units)).sum() / weight.sum()))
    return max(means) - float(np.median(means)) if means else 0.0


def _luma(content: Path | None) -> np.ndarray | None:
    if content is None:
        return None
    try:
        with reasons(str(content)), open_image(content) as image:
            return np.asarray(image.convert("YCbCr").getchannel(0) if image.mode != "L" else image)
    except CorruptImage:
        return None


def _is_lossless_webp(content: Path) -> bool:
    with content.open("rb") as file:
        return b"VP8L" in file.read(64)


def _luma_table(image: Image.Image) -> tuple[int, ...] | None:
    tables = getattr(image, "quantization", None)
    return tuple(tables[min(tables)]) if tables else None


def _quality(table: Sequence[int]) -> int:
    """Returns the quality of the tables of the Independent JPEG Group that is nearest, by the sum of the steps."""
    total, best = sum(table), 1
    for quality in range(1, 101):
        scale = 5000 / quality if quality < 50 else 200 - 2 * quality
        if sum(min(255, max(1, int((step * scale + 50) / 100))) for step in LUMA) >= total:
            best = quality
    return best


def _date(image: Image.Image) -> str | None:
    """Returns the later one of the dates "taken" and "changed" if the first is known: an edited copy keeps the first."""
    exif = image.getexif()
    taken = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
    dates = [date.strip("\0 ") for date in (taken, exif.get(ExifTags.Base.DateTime)) if isinstance(date, str)]
    dates = [date for date in dates if re.fullmatch(r"\d{4}:\d\d:\d\d \d\d:\d\d:\d\d", date)]
    return max(dates) if taken and dates else None


def name_key(item_id: str) -> tuple[int, object]:
    """Shorter file names first: names of copies have additions, such as "photo (1).jpg"."""
    return len(PurePosixPath(item_id).name), natural_key(item_id)


# ISO/IEC 10918-1, table K.1, the luma steps of quality 50, row by row.
LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
