"""Batches read in order by worker processes, and a progress bar for them."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Dataset

from coulomb.errors import InputError
from coulomb.randomness import generator


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def as_it_is(batch: Any) -> Any:
    """The collate function of data sets that return whole batches from ``__getitems__``."""
    return batch


class ErrorsAsData(Dataset[Any]):
    """Hands an :class:`InputError` over as it is; the loader would wrap it into a page of traceback."""

    def __init__(self, dataset: "Dataset[Any]") -> None:
        self.dataset = dataset

    def __getitems__(self, indices: list[int]) -> Any:
        try:
            return self.dataset.__getitems__(indices)  # type: ignore[attr-defined]
        except InputError as error:
            return error


def in_order(dataset: "Dataset[Any]", batches: Sequence[Sequence[int]], workers: int) -> Iterator[Any]:
    """``dataset.__getitems__(batch)`` for every batch, in order, by ``workers`` processes (at most one a core or batch)."""
    workers = min(workers, cores(), len(batches))
    if workers <= 0:
        for batch in batches:
            yield dataset.__getitems__(list(batch))  # type: ignore[attr-defined]
        return
    # A generator of its own: a loader without one draws its workers' seed from the global random state.
    loader = DataLoader(
        ErrorsAsData(dataset),
        batch_sampler=[list(batch) for batch in batches],
        num_workers=workers,
        collate_fn=as_it_is,
        generator=generator(0, "workers"),
    )
    for batch in loader:
        if isinstance(batch, InputError):
            raise batch
        yield batch


def blocks(indices: Sequence[int], size: int) -> list[list[int]]:
    """``indices`` cut into runs of ``size``; the last may be shorter."""
    return [[int(index) for index in indices[start : start + size]] for start in range(0, len(indices), size)]


Item = TypeVar("Item")


@contextmanager
def progress_bar(total: int, what: str, progress: bool | None) -> Iterator[Callable[[int], None]]:
    """A bar over ``total`` on stderr; yields the function that advances it.

    ``progress`` False: never a bar; None or True: a bar where stderr is a terminal and rich is installed.
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
    """The second of each (how many, item), with a `progress_bar` over ``total``."""
    with progress_bar(total, what, progress) as advance:
        for count, item in batches:
            yield item
            advance(count)
