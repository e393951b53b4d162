"""`coulomb lab`."""

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import fail, note, parse_pairs, say
from coulomb.cli.options import with_examples
from coulomb.ground.errors import InputError, Stopped

_data, _training, _run = (partial(typer.Option, rich_help_panel=panel) for panel in ("Data", "Training", "Run"))


@with_examples("coulomb lab temperature --quick", "coulomb lab methods --data photos/ --epochs 20 --seeds 3")
def lab(
    experiment: Annotated[str | None, typer.Argument(help="name; without one, all experiments are listed")] = None,
    data: Annotated[str, _data(help="labeled images, as for train")] = "digits",
    test: Annotated[str | None, _data(help="held-out images; default: a split of the data")] = None,
    long_tail: Annotated[str, _data(help="long tail of the experiment longtail")] = "exponential:100",
    quick: Annotated[bool, _training("--quick", help="a few epochs per run: about three minutes for digits")] = False,
    epochs: Annotated[int | None, _training(help="epochs of every run; default: set by its recipe", min=1)] = None,
    budget: Annotated[float | None, _training(help="minutes of training for every run, instead of epochs")] = None,
    option: Annotated[
        list[str] | None, _training("--set", metavar="NAME=VALUE", help="an option of train; may be repeated")
    ] = None,
    seeds: Annotated[
        int | None, _training(help="seeds per run, for mean ± deviation; default: 3, with --quick 1", min=1)
    ] = None,
    seed: Annotated[int, _training(help="first seed")] = 0,
    only: Annotated[list[str] | None, _run(help="only this run; may be repeated")] = None,
    out: Annotated[Path, _run(help="folder for runs and results")] = Path("runs/lab"),
    as_json: Annotated[bool, _run("--json", help="print one JSON object")] = False,
) -> None:
    """Reproduce a published experiment: a table, and which of its claims hold here. Resumes if interrupted.

    explore needs no data: it writes an offline page to move points and the temperature (--out FOLDER or
    FILE.html). doctor trains healthy runs and runs with known problems, and shows what the doctor reports; with --data PHOTOS
    also on photos.
    """
    from coulomb_lab.arms import Settings
    from coulomb_lab.experiment import perform
    from coulomb_lab.experiments import find_experiment, listing
    from coulomb_lab.page import render_text, save_page

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
        from coulomb_lab.explore import build_explorer

        _refuse(experiment, given | {"--only": only, "--seed": seed, "--json": as_json})
        say(f"page: {build_explorer(out if out.suffix == '.html' else out / 'explore' / 'index.html')}")
        return
    if experiment == "doctor":
        from coulomb_lab.doctor import suite, table

        _refuse(experiment, given)
        result = suite(out / "doctor", tuple(only or ()), seed, None if data == "digits" else data)
        say(json.dumps(result) if as_json else table(result))
        raise typer.Exit(1 if result["missed"] or result["wrong"] or result["alarms"] else 0)
    chosen = find_experiment(experiment)
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
        options=parse_pairs(option or [], "--set batch_size=128"),
    )
    try:
        result = perform(chosen, settings, ["coulomb", *sys.argv[1:]])
    except KeyboardInterrupt as error:
        code = error.code if isinstance(error, Stopped) else 130
        fail("interrupted; the same command resumes", code)
        raise typer.Exit(code) from None
    page = save_page(result, out / experiment)
    say(json.dumps(result) if as_json else render_text(result))
    note(f"page: {page}")


def _refuse(experiment: str, given: Mapping[str, object]) -> None:
    """Raises `InputError` for options that the experiment would ignore."""
    if unused := [name for name, value in given.items() if value]:
        raise InputError(
            f"{', '.join(unused)}: {experiment} has no such option; it has --out, and doctor --data, --only and --seed"
        )
