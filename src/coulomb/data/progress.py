"""A progress bar on a terminal, and silence anywhere else."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

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
