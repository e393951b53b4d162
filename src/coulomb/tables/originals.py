"""A source as a torch data set of images at their original resolution, each prepared by a function."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.kinds.image.picture import CorruptImage, Picture
from coulomb.kinds.image.pixels import eight_bits, to_channels
from coulomb.tables.images import Batch
from coulomb.tables.source import Source
from coulomb.tables.workers import Then, no_change, read_batches, split_batches

BATCH_BYTES = 2**24  # of float images; workers pass them through shared memory
WORKER_BYTES = 2**22  # where each worker computes features; a thread is fastest with small batches


def images_per_batch(channels: int, size: int, limit: int = BATCH_BYTES) -> int:
    """Returns how many float images [C, S, S] take at most ``limit`` bytes, at least one."""
    return max(1, limit // (4 * channels * size**2))


class Originals(Dataset[Batch]):
    """The images of a source as ``prepare`` makes them of the decoded photo, 8 bits per channel.

    JPEG files are decoded at full size: decoding them smaller, as `coulomb.tables.Images` does, changes pixels. One photo per
    process is in memory at a time. An image depends neither on the other images nor on the number of workers.

    Args:
        source: the images.
        channels: C that ``prepare`` takes; gray is repeated, color becomes luma.
        prepare: [H, W, C] uint8 → [C, S, S], uint8 or float32 in [0, 1]. Images with more bits are rounded to 8 first.
    """

    def __init__(self, source: Source, channels: int, prepare: Callable[[Picture], Tensor]) -> None:
        self.source = source
        self.channels = channels
        self.prepare = prepare
        self.failures: dict[int, str] = {}
        self.rounded: set[int] = set()

    def batches(
        self, indices: Sequence[int] | np.ndarray | Tensor, batch_size: int, workers: int = 0, then: Then = no_change
    ) -> Iterator[Batch]:
        """Yields batches of the images at these indices, in order; adds images that fail to ``failures``.

        ``then``: see `read_batches`.
        """
        for batch in read_batches(self, split_batches(indices, batch_size), workers, then):  # type: ignore[arg-type]
            self.failures.update(batch["failed"])
            self.rounded.update(batch["rounded"])
            yield batch

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """Returns the prepared images at these indices, in this order."""
        images, readable, failed, rounded = [], [], [], []
        for index in indices:
            try:
                picture = self.source.image(index)
            except CorruptImage as error:
                failed.append((index, error.reason))
                continue
            try:
                images.append(self.prepare(eight_bits(to_channels(picture, self.channels))))
            except InputError as error:
                raise InputError(f"{visible(self.source.item_id(index))}: {error}") from None
            readable.append(index)
            if picture.dtype != np.uint8:
                rounded.append(index)
        return {
            "image": torch.stack(images) if images else torch.empty(0),
            "aspect": torch.ones(len(images)),
            "index": torch.tensor(readable, dtype=torch.int64),
            "failed": failed,
            "rounded": rounded,
        }
