"""Sizes, modes and detail of a sample of images, to choose the image size and the number of channels."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coulomb.data.decode import to_channels
from coulomb.data.names import some, visible
from coulomb.data.source import CorruptImage, Header, Picture, Source
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


SAMPLE = 64  # images
LEAST_SIDE = 32  # pixels; smaller images are never called enlarged
EMPTY = 0.3  # ratio of energies below which a band counts as empty; photos have .5 and more
ABOVE = 0.2  # likewise for everything above the cutoff, relative to the octave below it
FLAT = 0.02  # the same for blocks of equal pixels, relative to the differences between blocks


def measure_detail(source: Source, readable: list[int], seed: int = 0) -> dict[str, Any] | None:
    """Detail of a seeded sample of 64 images: ``sampled``, ``enlarged`` (share), ``side`` and ``detail`` (pixels).

    ``side`` is the median short side; ``detail`` the side at which three quarters of the images would lose nothing, see
    :func:`detail_of`. None if the sample has no image of at least 32 pixels a side.
    """
    draw = numpy_generator(seed, "detail")
    chosen = draw.choice(readable, SAMPLE, replace=False) if len(readable) > SAMPLE else np.asarray(readable)
    sides, details = [], []
    for index in np.sort(chosen).tolist():
        try:
            picture = source.image(index)
        except CorruptImage:
            continue
        side = min(picture.shape[:2])
        if side >= LEAST_SIDE:
            sides.append(side)
            details.append(detail_of(picture))
    if not sides:
        return None
    return {
        "sampled": len(sides),
        "enlarged": float(np.mean([detail < side for detail, side in zip(details, sides, strict=True)])),
        "side": float(np.median(sides)),
        "detail": float(np.percentile(details, 75)),
    }


def detail_of(picture: Picture) -> float:
    """Side in pixels at which the central square of ``picture`` [H, W, C] would keep its detail; its own side mostly.

    Enlarging leaves frequencies above the old limit almost empty, or (nearest neighbour) blocks of equal pixels. In a
    photo each band of frequencies holds about as much energy as the one below it; the first band [d/2, 3d/4) cycles per
    image with less than .3 of the energy of [d/3, d/2) marks the limit, d·4/3, if little follows above it.
    """
    grey = _grey(picture)
    side = len(grey)
    for factor in range(8, 1, -1):
        if side % factor == 0 and _in_blocks(grey, factor):
            return side / factor
    window = np.hanning(side + 2)[1:-1]
    power = np.abs(np.fft.fft2((grey - grey.mean()) * window[:, None] * window)) ** 2
    cycles = np.abs(np.fft.fftfreq(side) * side)
    rings = np.maximum(cycles[:, None], cycles[None]).astype(int)
    below = np.concatenate([[0.0], np.cumsum(np.bincount(rings.ravel(), power.ravel()))])  # energy below k cycles

    def energy(low: float, high: float) -> float:
        top = len(below) - 1
        return float(below[min(round(high), top)] - below[min(round(low), top)])

    d = 12.0
    while d * 4 / 3 <= side / 1.5:
        limit = d * 2 / 3  # cycles per image
        empty = energy(d / 2, d * 0.75) < EMPTY * energy(d / 3, d / 2)
        if empty and energy(limit, side) < ABOVE * energy(limit / 2, limit):
            return d * 4 / 3
        d *= 2**0.25
    return float(side)


def detail_finding(found: dict[str, Any] | None, image_size: int) -> str | None:
    """A sentence if images look enlarged and would be trained larger than their detail; else None."""
    if found is None or found["enlarged"] <= 0.5 or (smaller := rounded_size(found["detail"])) >= image_size:
        return None
    return (
        f"The images look enlarged: {found['enlarged']:.0%} of {found['sampled']} sampled images of {found['side']:.0f} px "
        f"have the detail of about {found['detail']:.0f} px. Train smaller, which is faster and loses nothing: "
        f"--image-size {smaller}."
    )


def _grey(picture: Picture) -> np.ndarray:
    try:
        grey = to_channels(picture, 1)[..., 0].astype(np.float64)
    except InputError:  # neither grey nor colour
        grey = picture.astype(np.float64).mean(2)
    side = min(grey.shape)
    top, left = (grey.shape[0] - side) // 2, (grey.shape[1] - side) // 2
    return grey[top : top + side, left : left + side]


def _in_blocks(grey: np.ndarray, factor: int) -> bool:
    blocks = len(grey) // factor
    means = grey.reshape(blocks, factor, blocks, factor).mean((1, 3))
    rest = grey - np.repeat(np.repeat(means, factor, 0), factor, 1)
    between = float(np.square(np.diff(means, axis=0)).mean())
    return between > 0 and float(np.square(rest).mean()) < FLAT * between
