"""A progress bar on a terminal, and silence anywhere else."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def track(batches: Iterable[tuple[int, Item]], total: int, what: str, progress: bool | None) -> Iterator[Item]:
    """The second of each (how many, item), with a bar over ``total`` on stderr.

    ``progress`` False: never a bar; None or True: a bar where stderr is a terminal and rich is installed.
    """
    if progress is False or not sys.stderr.isatty():
        yield from (item for _, item in batches)
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield from (item for _, item in batches)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        for count, item in batches:
            yield item
            bar.advance(task, count)
