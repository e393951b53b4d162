"""Shows the progress of long tasks: a bar on a terminal, else lines of the log."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

log = logging.getLogger("coulomb")

Item = TypeVar("Item")


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
