"""Reads batches in order in worker processes."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.tables.shards.ahead import reading_ahead

Then = Callable[[Any], Any]


def cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_in_workers(device: torch.device, workers: int) -> bool:
    """Whether worker processes should compute features, each of the batches that it has read and with one thread.

    True on a CPU if there is a worker for each core. Otherwise features are computed in this process, whose threads wait for
    each other in every layer and compete with the workers for the cores (`python -m benchmarks.index` measures both). Only
    forked processes share the weights.
    """
    return device.type == "cpu" and workers >= cores() > 1 and multiprocessing.get_start_method() == "fork"


def no_change(batch: Any) -> Any:
    """Returns a batch as it is."""
    return batch


class ErrorsAsData(Dataset[Any]):
    """Returns an :class:`InputError` instead of raising it, because the loader would wrap it in a long traceback."""

    def __init__(self, dataset: "Dataset[Any]", then: Then = no_change) -> None:
        self.dataset, self.then = dataset, then

    def __getitems__(self, indices: list[int]) -> Any:
        try:
            return self.then(self.dataset.__getitems__(indices))  # type: ignore[attr-defined]
        except InputError as error:
            return error


def split_batches(indices: Sequence[int], size: int) -> list[list[int]]:
    """Returns consecutive batches of ``size`` of the ``indices``; the last one may be shorter."""
    return [[int(index) for index in indices[start : start + size]] for start in range(0, len(indices), size)]


def read_batches(
    dataset: "Dataset[Any]", batches: Sequence[Sequence[int]], workers: int, then: Then = no_change
) -> Iterator[Any]:
    """Yields ``then(dataset.__getitems__(batch))`` for every batch, in order.

    At most ``workers`` processes read, never more than there are cores or batches; 0 reads in this process, as does a
    single batch. Their number does not change the result. ``then`` is called by the process that has read the batch, see
    `compute_in_workers`.
    """
    workers = min(workers, cores(), len(batches))
    if workers <= 0 or len(batches) == 1:
        for batch in reading_ahead(dataset, batches, complete=False):
            yield then(dataset.__getitems__(list(batch)))  # type: ignore[attr-defined]
        return
    # Without a generator, the loader would draw the seed of its workers from the global random state.
    loader = DataLoader(
        ErrorsAsData(dataset, then),
        batch_sampler=reading_ahead(dataset, [list(batch) for batch in batches], complete=False),
        num_workers=workers,
        collate_fn=no_change,
        generator=generator(0, "workers"),
    )
    for batch in loader:
        if isinstance(batch, InputError):
            raise batch
        yield batch
