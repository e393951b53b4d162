"""Reads batches in order in worker processes, with a progress bar."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from coulomb.data.shards.ahead import reading_ahead
from coulomb.errors import InputError
from coulomb.randomness import generator

Item = TypeVar("Item")
Then = Callable[[Any], Any]


def cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compute_in_workers(device: torch.device, workers: int) -> bool:
    """Whether worker processes should compute features, each of the batches that it has read and with one thread.

    True on a CPU if there is a worker for each core. Otherwise features are computed in this process, whose threads wait for
    each other in every layer and compete with the workers for the cores: `coulomb bench index` measures both. Only forked
    processes share the weights.
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

    At most ``workers`` processes read, never more than there are cores or batches; 0 reads in this process. Their number
    does not change the result. ``then`` is called by the process that has read the batch, see `compute_in_workers`.
    """
    workers = min(workers, cores(), len(batches))
    if workers <= 0:
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


@contextmanager
def progress_bar(total: int, what: str, progress: bool | None) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar of ``total`` steps on stderr; yields the function that advances it.

    With ``progress`` True or None the bar is shown if stderr is a terminal and rich is installed; with False, never.
    """
    if progress is False or not sys.stderr.isatty():
        yield lambda count: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def track(batches: Iterable[tuple[int, Item]], total: int, what: str, progress: bool | None) -> Iterator[Item]:
    """Yields the items of (count, item) pairs while a `progress_bar` of ``total`` advances by their counts."""
    with progress_bar(total, what, progress) as advance:
        for count, item in batches:
            yield item
            advance(count)


def differences(advance: Callable[[int], object]) -> Callable[[int], None]:
    """Returns a function that takes the number of images so far and calls ``advance`` with its increase."""
    before = 0

    def count(done: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return count
