"""A quick look at a data set's sizes and modes, enough to choose an image size and the number of channels."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coulomb.data.names import some, visible
from coulomb.data.source import CorruptImage, Header, Source
from coulomb.errors import InputError
from coulomb.randomness import numpy_generator


@dataclass(frozen=True)
class Survey:
    """What a look at the headers found. ``width``, ``height``, ``short_side`` are medians in pixels, after EXIF orientation.

    ``…_range``: smallest and largest; ``modes``: how many of each; ``transparent``: how many were laid over white;
    ``channels`` and ``dtype``: what a canvas needs; ``uniform``: all have one size; ``unreadable``: reasons by id.
    """

    count: int
    sampled: int
    width: float
    height: float
    short_side: float
    width_range: tuple[int, int]
    height_range: tuple[int, int]
    modes: dict[str, int]
    transparent: int
    channels: int
    dtype: str
    uniform: bool
    unreadable: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def survey(source: Source, sample: int = 512, seed: int = 0) -> Survey:
    """Headers of a seeded ``sample`` of images (of all, where there are no more).

    ``channels``: 1 if every one is grey, 3 if any has colour, what they have for arrays. ``dtype``: float32 if any has
    more than 8 bits. Raises :class:`InputError` where not one can be read, or where arrays differ in channels.
    """
    chosen = _sample(len(source), sample, seed)
    headers, unreadable = read_headers(source, chosen)
    return summarise(source, headers, unreadable)


def summarise(source: Source, headers: list[Header], unreadable: dict[str, str]) -> Survey:
    """The survey of headers that were read."""
    if not headers:
        first = next(iter(unreadable.items()), ("", "the data set is empty"))
        raise InputError(
            f"{visible(source.name)}: none of {len(unreadable)} images can be read, e.g. {visible(first[0])}: {first[1]}"
        )
    widths, heights = np.array([h.width for h in headers]), np.array([h.height for h in headers])
    return Survey(
        count=len(source),
        sampled=len(headers) + len(unreadable),
        width=float(np.median(widths)),
        height=float(np.median(heights)),
        short_side=float(np.median(np.minimum(widths, heights))),
        width_range=(int(widths.min()), int(widths.max())),
        height_range=(int(heights.min()), int(heights.max())),
        modes=dict(Counter(header.mode for header in headers).most_common()),
        transparent=sum(header.transparent for header in headers),
        channels=_channels(source, headers),
        dtype="float32" if any(header.depth != "uint8" for header in headers) else "uint8",
        uniform=len({(header.width, header.height) for header in headers}) == 1,
        unreadable=unreadable,
    )


def suggest_image_size(found: Survey, largest: int = 128) -> int:
    """The side S of the canvas, at most ``largest``.

    All images ≤ 16 px: 16. Median short side ≤ 40: that, rounded to a multiple of 4 (28 → 28, 32 → 32). Larger: the median
    short side rounded to a multiple of 32.
    """
    if max(found.width_range[1], found.height_range[1]) <= 16:
        return min(16, largest)
    return min(rounded_size(found.short_side), largest)


def rounded_size(side: float) -> int:
    """``side`` rounded to a multiple of 4 (at least 8) up to 40 pixels, to a multiple of 32 above."""
    return max(8, 4 * int(side / 4 + 0.5)) if side <= 40 else 32 * int(side / 32 + 0.5)


def canvas_dtype(source: Source) -> str:
    """ "float32" where any of 64 images, evenly drawn, has more than 8 bits; else "uint8"."""
    headers, _ = read_headers(source, _sample(len(source), 64, 0))
    return "float32" if any(header.depth != "uint8" for header in headers) else "uint8"


def read_headers(source: Source, indices: np.ndarray) -> tuple[list[Header], dict[str, str]]:
    """Headers of the readable images among ``indices``, and the reasons of the others by id."""
    headers, unreadable = [], {}
    for index in indices.tolist():
        try:
            headers.append(source.header(index))
        except CorruptImage as error:
            unreadable[error.item_id] = error.reason
    return headers, unreadable


def _sample(count: int, sample: int, seed: int) -> np.ndarray:
    if count <= sample:
        return np.arange(count)
    return np.sort(numpy_generator(seed, "survey").choice(count, sample, replace=False))


def _channels(source: Source, headers: list[Header]) -> int:
    counts = {header.channels for header in headers}
    if counts <= {1, 3}:
        return max(counts)
    if len(counts) == 1:
        return counts.pop()
    raise InputError(
        f"{visible(source.name)}: images with {some(sorted(counts))} channels in one data set; make them equal"
    )
