"""`coulomb lab` and `coulomb bench`."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import app, fail, pairs, say
from coulomb.errors import InputError, Stopped


@app.command()
def lab(
    experiment: Annotated[str | None, typer.Argument(help="its name; without one, all are listed")] = None,
    data: Annotated[str, typer.Option(help="images with labels, as for train")] = "digits",
    test: Annotated[str | None, typer.Option(help="held-out images; without it a split of the data is made")] = None,
    out: Annotated[Path, typer.Option(help="folder for runs and results")] = Path("runs/lab"),
    quick: Annotated[bool, typer.Option("--quick", help="a few epochs each: about three minutes for digits")] = False,
    epochs: Annotated[int | None, typer.Option(help="of every run; default: each recipe's own", min=1)] = None,
    budget: Annotated[float | None, typer.Option(help="minutes of training for every run, instead of epochs")] = None,
    only: Annotated[list[str] | None, typer.Option(help="only this run; may be repeated")] = None,
    option: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="an option of train")] = None,
    long_tail: Annotated[str, typer.Option(help="of the experiment longtail")] = "exponential:100",
    seed: Annotated[int, typer.Option(help="of every random draw; the first of several")] = 0,
    seeds: Annotated[
        int | None, typer.Option(help="of every run, for mean ± deviation; default 3, with --quick 1", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Do an experiment of the field again: a table, and which claims hold here. Goes on where it was interrupted.

    explore needs no data: one offline page to drag points and the temperature on (--out FOLDER or FILE.html). doctor trains
    runs that are sick on purpose, and healthy ones, and shows what the doctor finds; with --data PHOTOS also on photos.
    """
    from coulomb.lab.arms import Settings
    from coulomb.lab.experiment import perform
    from coulomb.lab.experiments import experiment_of, listing
    from coulomb.lab.page import render, save_page

    if experiment is None:
        say(listing())
        return
    given = {
        "--test": test,
        "--quick": quick,
        "--epochs": epochs,
        "--budget": budget,
        "--set": option,
        "--seeds": seeds,
    }
    if experiment == "explore":
        from coulomb.lab.explore import build_explorer

        _refuse(experiment, given | {"--only": only, "--seed": seed, "--json": as_json})
        say(f"page: {build_explorer(out if out.suffix == '.html' else out / 'explore' / 'index.html')}")
        return
    if experiment == "doctor":
        from coulomb.lab.doctor import suite, table

        _refuse(experiment, given)
        found = suite(out / "doctor", tuple(only or ()), seed, None if data == "digits" else data)
        say(json.dumps(found) if as_json else table(found))
        raise typer.Exit(1 if found["missed"] or found["wrong"] or found["alarms"] else 0)
    chosen = experiment_of(experiment)
    settings = Settings(
        data=data,
        test=test,
        out=out,
        quick=quick,
        epochs=epochs,
        budget=budget,
        seed=seed,
        seeds=seeds,
        long_tail=long_tail,
        only=tuple(only) if only else None,
        options=pairs(option or [], "--set batch_size=128"),
    )
    try:
        result = perform(chosen, settings, ["coulomb", *sys.argv[1:]])
    except KeyboardInterrupt as error:
        code = error.code if isinstance(error, Stopped) else 130
        fail("interrupted; the same command goes on with what is left", code)
        raise typer.Exit(code) from None
    page = save_page(result, out / experiment)
    say(json.dumps(result) if as_json else render(result))
    print(f"coulomb: page: {page}", file=sys.stderr)  # noqa: T201


def _refuse(experiment: str, given: Mapping[str, object]) -> None:
    """Nothing that was asked for is passed over in silence."""
    if idle := [name for name, value in given.items() if value]:
        raise InputError(
            f"{', '.join(idle)}: {experiment} has no such option; it has --out, and doctor --data, --only and --seed"
        )


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
    from coulomb.bench.results import render, save
    from coulomb.bench.timing import progress

    if list_cases:
        say(list_of_cases())
        return
    command = shlex.join(["coulomb", *sys.argv[1:]])
    with progress(quiet=as_json) as doing:
        result = bench_losses(case or (), quick=quick, repeats=repeats, command=command, say=doing)
    say(json.dumps(result) if as_json else render(result))
    written = " and ".join(map(str, save(result, out)))
    print(f"coulomb: written: {written}", file=sys.stderr)  # noqa: T201
