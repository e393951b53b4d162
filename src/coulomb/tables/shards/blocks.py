"""Blocks: parts of shards that are read at once; the order of an epoch visits them in windows of several."""

from dataclasses import dataclass

import numpy as np

BLOCK = 2**20  # bytes of a tar file that are read at once; larger images are blocks of their own
WINDOW = 256 * 2**20  # bytes whose images are shuffled together


@dataclass(frozen=True)
class Blocks:
    """Consecutive images of a shard that one request reads: about 1 MiB of a tar file, or a row group of Parquet.

    Attributes:
        of: block of each image, int32 [N], ascending.
        shard: shard of each block, int32 [B].
        start: first byte of each block in its shard, int64 [B].
        end: byte after the last, int64 [B].
        window: bytes whose images are shuffled together.
    """

    of: np.ndarray
    shard: np.ndarray
    start: np.ndarray
    end: np.ndarray
    window: int = WINDOW

    @property
    def sizes(self) -> np.ndarray:
        """Size of each block in bytes."""
        return self.end - self.start

    def arrange(self, images: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Returns shuffled ``images`` of an epoch in the order of a new permutation of the blocks, window by window.

        Window w holds the blocks whose first byte, in the permuted sequence, lies in [256w, 256w + 256) MiB. Within a window
        images keep their order, so they are shuffled as before. The result is a pure function of ``images`` and ``draw``:
        neither the number of processes nor what was read before changes it. If all blocks fit in one window, it equals
        ``images``.
        """
        order = draw.permutation(len(self.shard))
        sizes = self.sizes[order]
        window = np.empty(len(order), dtype=np.int32)
        window[order] = (np.cumsum(sizes) - sizes) // self.window
        return images[np.argsort(window[self.of[images]], kind="stable")]


def cut_blocks(shard: np.ndarray, offsets: np.ndarray, sizes: np.ndarray, block: int = BLOCK) -> Blocks:
    """Divides images (their ``shard``, ``offsets`` and ``sizes``, in order) into `Blocks` of about ``block`` bytes."""
    if not len(shard):
        empty = np.zeros(0, dtype=np.int64)
        return Blocks(empty.astype(np.int32), empty.astype(np.int32), empty, empty)
    number = offsets // block
    new = (shard[1:] != shard[:-1]) | (number[1:] != number[:-1])
    first = np.concatenate([[0], np.flatnonzero(new) + 1])
    of = np.concatenate([[0], np.cumsum(new)]).astype(np.int32)
    return Blocks(of, shard[first].astype(np.int32), offsets[first], np.maximum.reduceat(offsets + sizes, first))
