"""Finds the bands of a data set, and their ranges in its training images."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import visible
from coulomb.kinds.image.bands import Bands, Measured, measure_bands
from coulomb.kinds.image.picture import CorruptImage, Picture
from coulomb.tables.source import Source
from coulomb.tables.survey import Survey, one_by_one

FIRST = 32  # images that decide on channels and depth
MOST = 512  # images that ranges are measured on
MOST_BYTES = 2**31  # of them


def find_bands(
    source: Source, rows: np.ndarray, surveyed: Survey, chosen: tuple[int, ...] | None, seed: int
) -> Measured | None:
    """Returns the bands of a data set; None for photos.

    Args:
        source: the images.
        rows: the training images.
        surveyed: the survey of the source.
        chosen: the option ``bands``: makes bands of photos, too, whose stored values are then used.
        seed: of the draw of at most 512 images, fewer if they take more than 2 GiB, on which ranges are measured.

    Raises:
        InputError: ``chosen`` names a band that most images do not have, or none of the images can be read.
    """
    if chosen is None and not surveyed.bands:
        return None
    rows = numpy_generator(seed, "bands").permutation(rows)
    first = list(_readable(source, rows[:FIRST]))
    if not first:
        raise InputError(f"{visible(source.name)}: none of {len(rows[:FIRST])} images can be read")
    counts = Counter(picture.shape[2] for picture in first)
    count = surveyed.channels if chosen is None else counts.most_common(1)[0][0]
    if chosen is not None and max(chosen) > count:
        raise InputError(f"bands={','.join(map(str, chosen))}: the images have {count} channels, counted from 1")
    deep = Counter(picture.dtype != np.uint8 for picture in first if picture.shape[2] == count).most_common(1)
    chosen = chosen or tuple(range(1, count + 1))
    if not deep or not deep[0][0]:
        return Measured(Bands(count, chosen), ())
    each = 4 * count * int(np.median([picture.shape[0] * picture.shape[1] for picture in first]))
    most = max(FIRST, min(MOST, MOST_BYTES // each))
    unit = (0.0,) * len(chosen), (1.0,) * len(chosen)
    expected = Bands(count, chosen, *unit, unit[0])  # tells which pictures have its channels and depth

    def fitting() -> Iterator[Picture]:
        for picture in _readable(source, np.sort(rows[:most])):
            try:
                expected.require(picture, "")
            except CorruptImage:  # decoding counts and names it
                continue
            yield picture

    return measure_bands(fitting(), expected, numpy_generator(seed, "pixels of bands"), min(most, len(rows)))


def _readable(source: Source, rows: np.ndarray | Sequence[Any]) -> Iterator[Picture]:
    for index in one_by_one(source, np.asarray(rows)):
        try:
            yield source.bands(index)
        except CorruptImage:
            continue
