"""Reads batches in order in worker processes, and shows the progress of long tasks."""

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.tables.shards.ahead import reading_ahead

log = logging.getLogger("coulomb")

Item = TypeVar("Item")
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


class Progress:
    """Progress of a task that nobody watches; `progress_bar` returns those that are shown."""

    def __call__(self, count: int) -> None:
        """Adds ``count`` finished steps."""

    def doing(self, what: str) -> None:
        """Names what the next steps do."""


class BarProgress(Progress):
    """A task of a bar of rich."""

    def __init__(self, bar: Any, total: int, what: str) -> None:
        self.bar, self.task = bar, bar.add_task(what, total=total)

    def __call__(self, count: int) -> None:
        """Advances the bar."""
        self.bar.advance(self.task, count)

    def doing(self, what: str) -> None:
        """Renames the bar."""
        self.bar.update(self.task, description=what, refresh=True)


LINE_EVERY = 15.0  # seconds


class LineProgress(Progress):
    """For logs and pipes: a line of the log every 15 seconds, with the remaining time; none for shorter tasks."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.began = self.printed = time.monotonic()

    def __call__(self, count: int) -> None:
        """Prints a line if it is time."""
        self.done += count
        now = time.monotonic()
        if now - self.printed < LINE_EVERY or self.done >= self.total:
            return
        self.printed = now
        left = ""
        if self.done:
            seconds = (now - self.began) * (self.total / self.done - 1)
            left = f", about {seconds:.0f} s left" if seconds < 100 else f", about {seconds / 60:.0f} min left"
        log.info("%s: %d of %d%s", self.what, self.done, self.total, left)

    def doing(self, what: str) -> None:
        """Renames the task."""
        self.what = what


@contextmanager
def progress_bar(total: int, what: str, progress: bool | None) -> Iterator[Progress]:
    """Shows the progress of ``total`` steps on stderr; yields the function that advances it.

    With ``progress`` True or None it is a bar if stderr is a terminal and rich is installed, otherwise a line of the log
    every 15 seconds. With False, nothing is shown.
    """
    if progress is False:
        yield Progress()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        shown = False
    else:
        shown = sys.stderr.isatty()
    if not shown:
        yield LineProgress(total, what)
        return
    # The elapsed time moves during a step that takes long, too.
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield BarProgress(bar, total, what)


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
