"""Images of a source as samples: square canvases, or prepared at their original resolution."""

from collections.abc import Sequence

import numpy as np
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import visible
from coulomb.kinds.image import Image
from coulomb.kinds.image.bands import Bands
from coulomb.tables.samples import Samples
from coulomb.tables.source import Source
from coulomb.tables.survey import canvas_dtype

BATCH_BYTES = 2**24  # of float images; workers pass them through shared memory
WORKER_BYTES = 2**22  # where each worker computes features; a thread is fastest with small batches


def images_per_batch(channels: int, size: int, limit: int = BATCH_BYTES) -> int:
    """Returns how many float images [C, S, S] take at most ``limit`` bytes, at least one."""
    return max(1, limit // (4 * channels * size**2))


def image_samples(
    source: Source,
    size: int = 32,
    channels: int = 3,
    *,
    dtype: str | None = None,
    cache_bytes: int = 2**30,
    workers: int = 0,
    progress: bool | None = None,
    bands: Bands | None = None,
) -> Samples:
    """Returns the canvases of a source as samples; ``dtype`` is by default the same as in training, see `Survey`.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> image_samples(source, size=4, channels=1).table is source
    True
    """
    kind = Image(size, channels, dtype or canvas_dtype(source), bands=bands)
    return Samples(source, {"image": kind}, cache_bytes=cache_bytes, workers=workers, progress=progress)


def normalization(
    images: Samples, samples: Sequence[int] | np.ndarray | None = None, most: int = 2048, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the mean [C] and standard deviation [C] of the pixels of some canvases, for values in [0, 1].

    The standard deviation is at least 1/255, so that constant images can be divided by it.

    Args:
        images: samples with a column of kind `Image`.
        samples: to draw from (the training images); default all.
        most: largest number of canvases.
        seed: seed of the draw.
    """
    rows = np.arange(len(images)) if samples is None else np.asarray(samples, dtype=np.int64)
    if len(rows) > most:
        rows = np.sort(numpy_generator(seed, "normalisation").choice(rows, most, replace=False))
    kind = images.kind
    total = torch.zeros(kind.channels, dtype=torch.float64)
    squares = torch.zeros(kind.channels, dtype=torch.float64)
    pixels = 0
    for batch in images.batches(rows, 256, images.workers):
        values = batch.stack.canvas.double().div_(255 if kind.dtype == "uint8" else 1)
        total += values.sum((0, 2, 3))
        squares += values.square().sum((0, 2, 3))
        pixels += values.numel() // kind.channels
    if not pixels:
        raise InputError(f"{visible(images.table.name)}: none of {len(rows)} images can be decoded")
    mean = total / pixels
    deviation = (squares / pixels - mean.square()).clamp_min(0).sqrt().clamp_min(1 / 255)
    return mean.float(), deviation.float()
