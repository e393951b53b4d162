"""Surveys a sample of images: sizes, modes and detail, from which image size and channels are chosen."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.picture import CorruptImage, Header, Picture
from coulomb.kinds.image.pixels import to_channels
from coulomb.tables.shards.ahead import reading_ahead
from coulomb.tables.source import Source


@dataclass(frozen=True)
class Survey:
    """Statistics of the headers of a sample of images.

    Attributes:
        count: images in the source.
        sampled: images in the sample.
        width: median in pixels, after EXIF orientation.
        height: median in pixels, after EXIF orientation.
        short_side: median in pixels.
        width_range: smallest and largest.
        height_range: smallest and largest.
        modes: number of images by mode.
        transparent: number of images with transparency.
        channels: that canvases need: 1 if all images are gray, 3 if any has color, the number that arrays have.
        dtype: type of canvases: "float32" if more than half of the images have more than 8 bits per channel, else "uint8", in
            which these images are rounded to 8 bits.
        uniform: whether all images have the same size.
        bands: whether most images have bands instead of colors, see `coulomb.kinds.image.bands`; ``channels`` is then the most
            frequent number.
        unreadable: reasons by id.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> survey(source).short_side
    4.0
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
    bands: bool = False
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def square(self) -> int | None:
        """The side of the images in pixels if all are squares of the same size, else None."""
        return int(self.width) if self.uniform and self.width == self.height else None

    def to_dict(self) -> dict[str, Any]:
        """Returns all attributes, JSON-serializable."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def survey(source: Source, sample: int = 512, seed: int = 0) -> Survey:
    """Surveys the headers of at most ``sample`` images, drawn by ``seed``.

    All headers are read if the sample is too close to half images with more than 8 bits to decide for all.

    Raises:
        InputError: no header can be read, or the images of an array source differ in channels.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> survey(source).width_range
    (4, 4)
    """
    chosen = _sample(len(source), sample, seed)
    headers, unreadable = read_headers(source, chosen)
    return dataclasses.replace(
        summarize(source, headers, unreadable), dtype=_dtype_of_all(source, headers, len(chosen))
    )


MARGIN = 0.15  # of a sample of 512: almost 7 standard deviations


def canvas_dtype(source: Source) -> str:
    """Returns the type of canvas that most images need, as :func:`survey` does."""
    chosen = _sample(len(source), 512, 0)
    return _dtype_of_all(source, read_headers(source, chosen)[0], len(chosen))


def _dtype_of_all(source: Source, headers: list[Header], chosen: int) -> str:
    """Returns the type of canvas of a source from the ``headers`` of ``chosen`` images, or of all if these do not tell."""
    if chosen < len(source) and abs(_deep_share(headers) - 0.5) < MARGIN:
        headers = read_headers(source, np.arange(len(source)))[0]
    return _majority(headers)


def _deep_share(headers: list[Header]) -> float:
    """Returns the share of images with more than 8 bits per channel."""
    return sum(header.depth != "uint8" for header in headers) / max(1, len(headers))


def _majority(headers: list[Header]) -> str:
    """Returns the type of canvas that most images need: one odd file does not decide for the others."""
    return "float32" if _deep_share(headers) > 0.5 else "uint8"


def summarize(source: Source, headers: list[Header], unreadable: dict[str, str]) -> Survey:
    """Returns the survey of these headers, and of images that are ``unreadable`` (reasons by id)."""
    if not headers:
        item_id, reason = next(iter(unreadable.items()), ("", "the data set is empty"))
        raise InputError(
            f"{visible(source.name)}: none of {len(unreadable)} images can be read, e.g. {visible(item_id)}: {reason}"
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
        bands=_mostly_bands(headers),
        dtype=_majority(headers),
        uniform=len({(header.width, header.height) for header in headers}) == 1,
        unreadable=unreadable,
    )


def suggest_image_size(surveyed: Survey, largest: int = 128) -> int:
    """Returns an image size in pixels, at most ``largest``.

    It is 16 if no side exceeds 16 pixels, and else the median short side, rounded by `round_size`.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> suggest_image_size(survey(source))
    16
    """
    if max(surveyed.width_range[1], surveyed.height_range[1]) <= 16:
        return min(16, largest)
    return min(round_size(surveyed.short_side), largest)


def round_size(side: float) -> int:
    """Rounds ``side`` to a multiple of 4 (at least 8) up to 40 pixels, and to a multiple of 32 above."""
    return max(8, 4 * int(side / 4 + 0.5)) if side <= 40 else 32 * int(side / 32 + 0.5)


def read_headers(source: Source, indices: np.ndarray) -> tuple[list[Header], dict[str, str]]:
    """Returns the headers of the readable images among ``indices``, and the reasons of the others by id."""
    headers, unreadable = [], {}
    for index in one_by_one(source, indices):
        try:
            headers.append(source.header(index))
        except CorruptImage as error:
            unreadable[error.item_id] = error.reason
    return headers, unreadable


def one_by_one(source: Source, indices: np.ndarray) -> Iterator[int]:
    """Yields the ``indices``; images of a remote source are read ahead."""
    for (index,) in reading_ahead(Positions(source), [[index] for index in indices.tolist()], complete=False):
        yield index


class Positions(NamedTuple):
    """A source whose images are read by index, for `reading_ahead`."""

    source: Source


def _sample(count: int, sample: int, seed: int) -> np.ndarray:
    if count <= sample:
        return np.arange(count)
    return np.sort(numpy_generator(seed, "survey").choice(count, sample, replace=False))


def _mostly_bands(headers: list[Header]) -> bool:
    return 2 * sum(header.bands for header in headers) > len(headers)


def _channels(source: Source, headers: list[Header]) -> int:
    if _mostly_bands(headers):  # of images with another number, training says which they are
        return Counter(header.channels for header in headers if header.bands).most_common(1)[0][0]
    counts = {header.channels for header in headers}
    if counts <= {1, 3}:
        return max(counts)
    if len(counts) == 1:
        return counts.pop()
    raise InputError(
        f"{visible(source.name)}: the images have {first_few(sorted(counts))} channels; convert them to the same number"
    )


DETAIL_SAMPLE = 64  # images
SMALLEST_SIDE = 32  # pixels; smaller images are never reported as enlarged
EMPTY_BAND = 0.3  # a frequency band is empty below this energy relative to the band before it; photos have .5 and more
EMPTY_ABOVE = 0.2  # limit on the energy of all frequencies above the cutoff, relative to the octave below it
FLAT_BLOCK = 0.02  # limit on the variance within blocks of equal pixels, relative to that between blocks


def measure_detail(source: Source, readable: list[int], seed: int = 0) -> dict[str, Any] | None:
    """Measures whether images were enlarged, on 64 of the ``readable`` indices drawn by ``seed``.

    Returns:
        ``sampled`` (images), ``enlarged`` (fraction of them), ``side`` (median short side in pixels) and ``detail`` (side
        in pixels at which three quarters of the images would lose no detail, see :func:`detail_side`); None if no
        sampled image has sides of at least 32 pixels.
    """
    draw = numpy_generator(seed, "detail")
    chosen = (
        draw.choice(readable, DETAIL_SAMPLE, replace=False) if len(readable) > DETAIL_SAMPLE else np.asarray(readable)
    )
    sides, details = [], []
    for index in one_by_one(source, np.sort(chosen)):
        try:
            picture = source.image(index)
        except CorruptImage:
            continue
        side = min(picture.shape[:2])
        if side >= SMALLEST_SIDE:
            sides.append(side)
            details.append(detail_side(picture))
    if not sides:
        return None
    return {
        "sampled": len(sides),
        "enlarged": float(np.mean([detail < side for detail, side in zip(details, sides, strict=True)])),
        "side": float(np.median(sides)),
        "detail": float(np.percentile(details, 75)),
    }


def detail_side(picture: Picture) -> float:
    """Side in pixels at which the central square of ``picture`` [H, W, C] keeps its detail; mostly its actual side.

    An enlarged image has almost no energy above its old cutoff frequency, or (by nearest neighbor) consists of blocks of
    equal pixels. In photos every frequency band has about as much energy as the one below it. The cutoff is therefore the
    first band [d/2, 3d/4) cycles per image with less than .3 of the energy of [d/3, d/2), if there is little energy above
    it; the detail is then d·4/3 pixels.
    """
    gray = _gray(picture)
    side = len(gray)
    for factor in range(8, 1, -1):
        if side % factor == 0 and _in_blocks(gray, factor):
            return side / factor
    window = np.hanning(side + 2)[1:-1]
    power = np.abs(np.fft.fft2((gray - gray.mean()) * window[:, None] * window)) ** 2
    cycles = np.abs(np.fft.fftfreq(side) * side)
    rings = np.maximum(cycles[:, None], cycles[None]).astype(int)
    below = np.concatenate([[0.0], np.cumsum(np.bincount(rings.ravel(), power.ravel()))])  # energy below k cycles

    def energy(low: float, high: float) -> float:
        top = len(below) - 1
        return float(below[min(round(high), top)] - below[min(round(low), top)])

    d = 12.0
    while d * 4 / 3 <= side / 1.5:
        limit = d * 2 / 3  # cycles per image
        empty = energy(d / 2, d * 0.75) < EMPTY_BAND * energy(d / 3, d / 2)
        if empty and energy(limit, side) < EMPTY_ABOVE * energy(limit / 2, limit):
            return d * 4 / 3
        d *= 2**0.25
    return float(side)


def detail_finding(detail: dict[str, Any] | None, image_size: int, smallest: int = 0) -> str | None:
    """Returns a sentence if images look enlarged and would be trained at more than their detail, else None.

    ``smallest``: the smallest image size to recommend.
    """
    if detail is None or detail["enlarged"] <= 0.5:
        return None
    smaller = max(smallest, round_size(detail["detail"]))
    if smaller >= image_size:
        return None
    return (
        f"The images look enlarged: {detail['enlarged']:.0%} of {detail['sampled']} sampled images of "
        f"{detail['side']:.0f} px have the detail of about {detail['detail']:.0f} px. Training smaller is faster and loses "
        f"no detail: --image-size {smaller}."
    )


def _gray(picture: Picture) -> np.ndarray:
    try:
        gray = to_channels(picture, 1)[..., 0].astype(np.float64)
    except InputError:  # neither 1 nor 3 channels
        gray = picture.astype(np.float64).mean(2)
    side = min(gray.shape)
    top, left = (gray.shape[0] - side) // 2, (gray.shape[1] - side) // 2
    return gray[top : top + side, left : left + side]


def _in_blocks(gray: np.ndarray, factor: int) -> bool:
    blocks = len(gray) // factor
    means = gray.reshape(blocks, factor, blocks, factor).mean((1, 3))
    rest = gray - np.repeat(np.repeat(means, factor, 0), factor, 1)
    between = float(np.square(np.diff(means, axis=0)).mean())
    return between > 0 and float(np.square(rest).mean()) < FLAT_BLOCK * between
