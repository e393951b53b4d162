"""Reads ahead: the ranges that the next batches need are in the cache before the batches are decoded."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from coulomb.tables.table import Table

THREADS = 16  # requests at the same time
MOST_IMAGES = 2**18  # of the batches that wait
WHOLE_FROM = 0.25  # fraction of the images of a block from which it is read as a whole


class ReadAhead(Sampler[list[int]]):
    """Yields the same ``batches``, each when everything it needs is in the cache, while threads fetch what later ones need.

    It runs ahead by at most one window of bytes, so that the window after the current one is fetched while this one is used.

    Args:
        batches: samples of the table.
        source: a remote table.
        whole: images by block that are needed, to fetch single images where they are few; None fetches whole blocks.
    """

    def __init__(self, batches: Iterable[list[int]], source: Table, whole: np.ndarray | None = None) -> None:
        self.batches, self.source, self.whole = batches, source, whole

    def __len__(self) -> int:
        assert isinstance(self.batches, Sized)
        return len(self.batches)

    def _units(self, batch: list[int]) -> list[int]:
        """Returns what a batch needs: blocks b ≥ 0, and single images i as −1 − i."""
        images = np.asarray(batch, dtype=np.int64)
        assert self.source.blocks is not None
        blocks = self.source.blocks.of[images]
        if self.whole is None:
            return np.unique(blocks).tolist()
        entire = self.whole[blocks]
        return [*np.unique(blocks[entire]).tolist(), *(-1 - images[~entire]).tolist()]

    def __iter__(self) -> Iterator[list[int]]:
        assert self.source.blocks is not None
        most = self.source.blocks.window
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="read-ahead")
        known: OrderedDict[int, Future[None]] = OrderedDict()  # the newest of about three windows
        known_bytes = waiting_bytes = waiting_images = 0
        waiting: deque[tuple[list[int], list[Future[None]], int]] = deque()
        upcoming = iter(self.batches)
        more = True
        try:
            while more or waiting:
                while more and (not waiting or (waiting_bytes < most and waiting_images < MOST_IMAGES)):
                    batch = next(upcoming, None)
                    if batch is None:
                        more = False
                        break
                    futures, new = [], 0
                    for unit in self._units(batch):
                        if unit not in known:
                            known[unit] = pool.submit(self.source.fetch, unit)
                            new += self.source.unit_size(unit)
                        known.move_to_end(unit)
                        futures.append(known[unit])
                    waiting.append((batch, futures, new))
                    waiting_bytes, waiting_images, known_bytes = (
                        waiting_bytes + new,
                        waiting_images + len(batch),
                        known_bytes + new,
                    )
                    while known_bytes > 3 * most and len(known) > len(futures):
                        known_bytes -= self.source.unit_size(known.popitem(last=False)[0])
                if waiting:
                    batch, futures, new = waiting.popleft()
                    waiting_bytes, waiting_images = waiting_bytes - new, waiting_images - len(batch)
                    for future in futures:
                        future.result()
                    yield batch
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def reading_ahead(dataset: Any, batches: Any, *, complete: bool = True) -> Any:
    """Returns ``batches`` (of samples in ``dataset``) with their data read ahead if the data set's table is remote.

    ``complete``: the batches cover whole blocks, as in training; else, for a sequence of batches, single images are fetched
    where fewer than a quarter of the images of a block are needed.
    """
    table = getattr(dataset, "table", None)
    if not isinstance(table, Table) or not table.remote or table.blocks is None or getattr(dataset, "cached", False):
        return batches
    whole = None
    if not complete and table.single_images and isinstance(batches, Sequence):
        needed = np.fromiter((each for batch in batches for each in batch), dtype=np.int64)
        of, count = table.blocks.of, len(table.blocks.shard)
        whole = np.bincount(of[np.unique(needed)], minlength=count) >= WHOLE_FROM * np.bincount(of, minlength=count)
    return ReadAhead(batches, table, whole)
