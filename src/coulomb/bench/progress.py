"""What is being done, on stderr: one changing line on a terminal, one line for each step elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A function to call with what is being done."""
    if quiet:
        yield lambda text: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield status.update
    else:
        yield lambda text: print(f"coulomb: {text}", file=sys.stderr, flush=True)  # noqa: T201
