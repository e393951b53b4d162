"""What all benchmarks share as commands: options, output, progress messages, errors."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from coulomb.cli.app import run, say
from coulomb.cli.options import JSON, examples

Json = Annotated[bool, JSON]
Repeats = Annotated[int, typer.Option(help="rounds, of which medians are reported", min=1)]
Folder = Annotated[Path | None, typer.Option(help="where temporary files go; they take up to 2 GB")]


def command(main: Callable[..., None], *arguments: str) -> None:
    """Runs ``main`` as a command with the errors and exit codes of `coulomb`, and exits.

    The ``arguments`` are examples for the end of its help: what follows ``python -m benchmarks.NAME``.
    """
    name = f"python -m benchmarks.{Path(sys.argv[0]).stem}"
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    app.command(epilog=examples(*(f"{name} {each}".rstrip() for each in arguments)))(main)
    run(lambda: app(standalone_mode=False, prog_name=name))


def show(result: dict[str, Any], as_json: bool, render: Callable[[dict[str, Any]], str]) -> None:
    """Prints a result as one JSON object or as text."""
    say(json.dumps(result) if as_json else render(result))


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows progress on stderr: one changing line on a terminal, else a line per message."""
    if quiet:
        yield lambda text: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield status.update
    else:
        yield lambda text: print(f"coulomb: {text}", file=sys.stderr, flush=True)
