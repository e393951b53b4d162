"""Whether images were enlarged: files of 128 pixels that hold no more detail than 32 pixels would."""

from typing import Any

import numpy as np

from coulomb.data.canvas import to_channels
from coulomb.data.source import CorruptImage, Picture, Source
from coulomb.data.survey import rounded_size
from coulomb.errors import InputError
from coulomb.randomness import numpy_generator

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
