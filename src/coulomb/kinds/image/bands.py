"""Bands: the channels of images that are not photos, such as satellite tiles, and how their values become [0, 1].

Photos have 1 or 3 channels of known range. Bands are any number of channels with values of any range, so that a run measures
the range of each band on its training images and keeps it (`Canvas`): training, `encode`, an index and an exported program all
scale with these numbers. Functions that `coulomb.export` copies into programs use NumPy only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.reading import Shape, list_of, maybe, number, whole
from coulomb.kinds.image.picture import CorruptImage, Picture

# Share of an image's band outside the range from which on it is worth attention: the percentiles cut .2% from all images
# together, highlights are a few percent of a picture, and more is a region without contrast, such as clouds.
SATURATED = 0.1
LOW, HIGH = 0.1, 99.9  # percentiles that become 0 and 1: one hot or dead pixel in a thousand does not set the range
MOST_VALUES = 2**24  # values of all bands that percentiles are computed of
SHOWN = 3  # bands in a picture


@dataclass(frozen=True)
class Bands:
    """Which channels of an image are used, and how their values become [0, 1].

    Attributes:
        count: channels of the images, at least the largest of ``chosen``.
        chosen: the channels that the network sees, in its order, counted from 1.
        low: value of each chosen channel that becomes 0; empty for 8 bits, which are divided by 255.
        high: value of each chosen channel that becomes 1.
        fill: value in [0, 1] of each chosen channel in place of missing ones (NaN, infinite, "no data"): the mean of the
            training images.
    """

    count: int
    chosen: tuple[int, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    fill: tuple[float, ...] = ()

    @property
    def eight_bits(self) -> bool:
        """True if the images have 8 bits per channel, which need no range."""
        return not self.low

    @property
    def depth(self) -> str:
        """What the images hold, for messages."""
        return "8 bits per channel" if self.eight_bits else "more than 8 bits per channel"

    def require(self, picture: Picture, item_id: str) -> None:
        """Raises `CorruptImage` if an image has another number of channels or another depth than the training images."""
        if picture.shape[2] != self.count:
            raise CorruptImage(
                item_id, f"has {counted(picture.shape[2], 'channel')}, and the training images have {self.count}"
            )
        if (picture.dtype == np.uint8) != self.eight_bits:
            raise CorruptImage(item_id, f"its values are {picture.dtype}, and the training images have {self.depth}")

    def apply(self, picture: Picture, item_id: str) -> Picture:
        """Returns the chosen bands [H, W, C]: uint8, or float32 in [0, 1].

        Raises:
            CorruptImage: another number of channels or another depth than the training images, or no value at all.
        """
        self.require(picture, item_id)
        if self.eight_bits:
            return picture[..., [band - 1 for band in self.chosen]]
        if picture.dtype.kind == "f" and not np.isfinite(picture).any():
            raise CorruptImage(item_id, "holds no values (all are NaN or infinite)")
        return scaled(picture, self.chosen, self.low, self.high, self.fill)

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes, JSON-serializable."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Bands":
        """Inverse of `to_dict`."""
        return cls(stored["count"], *(tuple(stored[name]) for name in ("chosen", "low", "high", "fill")))

    @property
    def shown(self) -> str:
        """Which bands a picture shows, for pages."""
        first = ", ".join(map(str, self.chosen[: 1 if len(self.chosen) < SHOWN else SHOWN]))
        return f"band {first}" if len(self.chosen) < SHOWN else f"bands {first} as red, green, blue"

    def describe(self) -> str:
        """Returns a sentence for logs and pages."""
        every = self.chosen == tuple(range(1, self.count + 1))
        which = f"{self.count} bands" if every else f"bands {', '.join(map(str, self.chosen))} of {self.count}"
        if self.eight_bits:
            return f"{which} of 8 bits, divided by 255"
        return f"{which}, each scaled to [0, 1] from its percentiles {LOW:g} and {HIGH:g} in the training images"


def fits(value: Any) -> bool:
    """Returns True for what `Bands.to_dict` returns."""
    if not isinstance(value, dict) or set(value) != {"count", "chosen", "low", "high", "fill"}:
        return False
    chosen = value["chosen"]
    if not (whole.fits(value["count"]) and list_of(whole).fits(chosen) and chosen):
        return False
    if not all(1 <= band <= value["count"] for band in chosen):
        return False
    ranges = [value[name] for name in ("low", "high", "fill")]
    if ranges == [[], [], []]:
        return True
    if not all(list_of(number).fits(each) and len(each) == len(chosen) for each in ranges):
        return False
    return all(high > low for low, high in zip(*ranges[:2], strict=True))


STORED_BANDS = maybe(Shape("an object with count, chosen, low, high and fill, as a run writes it", fits))


def scaled(
    picture: Picture, chosen: Sequence[int], low: Sequence[float], high: Sequence[float], fill: Sequence[float]
) -> Picture:
    """Returns channels of [H, W, c] as float32 in [0, 1]: (x − low) / (high − low), clipped.

    Missing values become ``fill``.
    """
    bottom, top, missing = (np.array(each, np.float32) for each in (low, high, fill))
    values = picture[..., [band - 1 for band in chosen]].astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        unit = np.clip((values - bottom) / (top - bottom), 0, 1)
    return np.where(np.isfinite(values), unit, missing)


def parse_bands(text: str) -> tuple[int, ...]:
    """Returns the channels that the option ``bands`` names, such as ``4,3,2`` or ``1-4``. Raises `InputError`."""
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise InputError(f"bands={text!r}: must be numbers from 1, such as 4,3,2 or 1-4")
        ends = int(first), int(last) if dash else int(first)
        if not 1 <= ends[0] <= ends[1] <= 10_000:
            raise InputError(f"bands={text!r}: bands are counted from 1, and a range goes up, such as 1-4")
        chosen += range(ends[0], ends[1] + 1)
    if len(set(chosen)) != len(chosen):
        raise InputError(f"bands={text!r}: names a band twice; give each once")
    return tuple(chosen)


class Measured(NamedTuple):
    """Bands with ranges, and sentences on the images that they were measured on; ``findings`` are those worth attention."""

    bands: Bands
    notes: tuple[str, ...]
    findings: tuple[str, ...] = ()


def measure_bands(pictures: Iterable[Picture], bands: Bands, draw: np.random.Generator, images: int) -> Measured:
    """Returns ``bands`` with the ranges of some images of more than 8 bits.

    Percentiles are computed of as many pixels of each image as `MOST_VALUES` allows for ``images``. A band whose percentiles
    are equal, such as sparse fluorescence, takes its smallest and largest value instead.

    Args:
        pictures: [H, W, count], of the training images.
        bands: without ranges.
        draw: chooses the pixels.
        images: number of pictures, at most.
    """
    index = [band - 1 for band in bands.chosen]
    most = max(64, MOST_VALUES // (len(index) * max(1, images)))
    drawn, partly, count = [], 0, 0
    lowest, highest = np.full(len(index), np.inf), np.full(len(index), -np.inf)
    for picture in pictures:
        values = picture[..., index].reshape(-1, len(index)).astype(np.float32)
        finite = np.isfinite(values)
        partly += not finite.all()
        lowest = np.minimum(lowest, np.where(finite, values, np.inf).min(0))
        highest = np.maximum(highest, np.where(finite, values, -np.inf).max(0))
        count += 1
        drawn.append(values if len(values) <= most else values[draw.choice(len(values), most, replace=False)])
    if not drawn:
        raise InputError("bands: none of the training images can be read, so that their range is unknown")
    values = np.concatenate(drawn)
    low, high, fill, constant = [], [], [], []
    for place, band in enumerate(bands.chosen):
        known = values[:, place][np.isfinite(values[:, place])]
        if not len(known):
            raise InputError(f"bands: band {band} has no values in {count} training images; leave it out with --bands")
        bottom, top = (float(each) for each in np.percentile(known.astype(np.float64), (LOW, HIGH)))
        if not np.float32(top) > np.float32(bottom):
            bottom, top = float(lowest[place]), float(highest[place])
        if not top > bottom:
            constant.append(f"{band} ({bottom:g})")
            top = bottom + max(1.0, abs(bottom))
        bottom, top = float(np.float32(bottom)), float(np.float32(top))
        unit = np.clip((known.astype(np.float64) - bottom) / (top - bottom), 0, 1)
        low.append(bottom)
        high.append(top)
        fill.append(float(np.float32(unit.mean())))
    findings = []
    if missing := int((~np.isfinite(values)).sum()):
        findings.append(
            f"{missing / values.size:.2%} of the values in {count} training images are missing (NaN, infinite or no data), in "
            f"{partly} of these images: they are set to the mean of their band."
        )
    if constant:
        findings.append(
            f"band{'s' * (len(constant) > 1)} {', '.join(constant)}: constant in {count} training images, and carries no "
            "information; --bands leaves it out."
        )
    bounds = np.array(low, np.float32), np.array(high, np.float32)
    outside = [((each < bounds[0]) | (each > bounds[1])) & np.isfinite(each) for each in drawn]
    share = sum(int(each.sum()) for each in outside) / values.size
    clipped = f"{share:.2%} of the values in {count} training images are outside the range and become 0 or 1"
    saturated = sum(float(each.mean(0).max()) > SATURATED for each in outside)
    if saturated:
        findings.append(
            f"{clipped}; in {counted(saturated, 'image')} more than {SATURATED:.0%} of a band, which lose their contrast."
        )
    notes = [*findings, *([] if saturated else [f"{clipped}."])]
    ranges = {"low": tuple(low), "high": tuple(high), "fill": tuple(fill)}
    return Measured(Bands(bands.count, bands.chosen, **ranges), tuple(notes), tuple(findings))
