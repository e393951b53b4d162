"""`coulomb bench`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import app
from coulomb.cli.console import say

bench = typer.Typer(help="Measure the speed of coulomb's parts beside others', in one interleaved run.")
app.add_typer(bench, name="bench")


@bench.command("views")
def bench_views_command(as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False) -> None:
    """Images a second of the augmentation chain, beside kornia."""
    from coulomb.bench.views import bench_views, render

    result = bench_views()
    say(json.dumps(result) if as_json else render(result))


@bench.command("pulse")
def bench_pulse_command(as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False) -> None:
    """What the look at negatives, gradients and weights costs a training, in per cent."""
    from coulomb.bench.pulse import bench_pulse, render

    result = bench_pulse()
    say(json.dumps(result) if as_json else render(result))


@bench.command("losses")
def bench_losses_command(
    case: Annotated[list[str] | None, typer.Option(help="only this case; may be repeated (see --list)")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a few cases, nothing compiled: about a minute")] = False,
    repeats: Annotated[int, typer.Option(help="rounds; medians of them are reported", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="folder for losses.json and losses.html")] = Path("runs/bench"),
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    list_cases: Annotated[bool, typer.Option("--list", help="list the cases and their targets")] = False,
) -> None:
    """Time and memory of the losses, beside their peers and the matrix products alone."""
    from coulomb.bench.losses import bench_losses, list_of_cases
    from coulomb.bench.page import save
    from coulomb.bench.progress import progress
    from coulomb.bench.text import render

    if list_cases:
        say(list_of_cases())
        return
    command = shlex.join(["coulomb", *sys.argv[1:]])
    with progress(quiet=as_json) as doing:
        result = bench_losses(case or (), quick=quick, repeats=repeats, command=command, say=doing)
    say(json.dumps(result) if as_json else render(result))
    written = " and ".join(map(str, save(result, out)))
    print(f"coulomb: written: {written}", file=sys.stderr)  # noqa: T201
