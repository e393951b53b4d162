"""`coulomb train`, and `check` and `views`, which look at the images before it."""

import inspect
import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, pairs, say
from coulomb.cli.options import config_parameters, given_options, keyword, with_signature
from coulomb.errors import InputError, Stopped
from coulomb.models.user_code import is_own_file
from coulomb.runs.objects import BANK


def train(**given: Any) -> None:
    """Train an encoder on images, evaluate it beside its baselines, and write a report to look at."""
    try:
        _train(given)
    except Stopped as error:  # Typer would end in silence
        print(f"coulomb: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(error.code) from None


def _train(given: dict[str, Any]) -> None:
    if given["quiet"]:
        logging.getLogger("coulomb").handlers[-1].setLevel(logging.WARNING)
    resume, evaluate, given_seeds = given.pop("resume"), given.pop("evaluate"), given.pop("seeds")
    quiet = given.pop("quiet")
    options = given_options(given)
    if given_seeds is not None or (resume is not None and (resume / "seeds.json").is_file()):
        _train_seeds(given_seeds, resume, options, evaluate=evaluate, quiet=quiet)
        return
    if resume is not None:
        if extra := _refused_with_resume(options):
            raise InputError(f"--resume continues a run with its own config.yaml; remove {', '.join(extra)}")
        run = coulomb.train(resume_from=resume, **options, evaluate=evaluate, progress=not quiet)
    else:
        run = coulomb.train(**options, evaluate=evaluate, progress=not quiet)
    from coulomb.report.tables import evaluation_table
    from coulomb.training.launch import first_process

    if not first_process():
        return  # the first of several processes speaks for all
    if evaluate:
        from coulomb.doctor import verdict_lines

        say(evaluation_table(run.evaluation))
        say(verdict_lines(run.doctor))
        say(f"report: {run.report}")
    say(f"run folder: {run.path}")


def _train_seeds(
    seeds: int | None, resume: Path | None, options: dict[str, Any], *, evaluate: bool, quiet: bool
) -> None:
    """Several runs and their mean ± deviation."""
    from coulomb.report.tables import summary_table

    if not evaluate:
        raise InputError("--no-evaluate with --seeds: the deviation is that of the evaluation; leave out one of them")
    if resume is None:
        assert seeds is not None
        summary, out = coulomb.train_seeds(seeds, **options, progress=not quiet)
    else:
        extra = _refused_with_resume(options) + (["seeds"] if seeds is not None else [])
        if extra:
            raise InputError(f"--resume continues the runs with their own options; remove {', '.join(extra)}")
        summary, out = coulomb.train_seeds(resume_from=resume, **options, progress=not quiet)
    say(summary_table(summary))
    say(f"summary: {out / 'summary.json'}")


def _refused_with_resume(options: dict[str, Any]) -> list[str]:
    """The options that a resumed run does not take: all but those that name the user's own code and files again."""
    taken = {"encoder"}
    if is_own_file(options.get("method", "")):
        taken.add("method")
    if set(options.get("method_options", {})) == {BANK}:
        taken.add("method_options")
    return sorted(set(options) - taken)


def _parameters() -> list[inspect.Parameter]:
    return [
        *config_parameters(),
        keyword("resume", Path | None, typer.Option(help="run folder to continue after a stop"), None),
        keyword(
            "seeds",
            int | None,
            typer.Option(help="runs with as many seeds: OUT/seed0, … and their mean ± deviation"),
            None,
        ),
        keyword("evaluate", bool, typer.Option(help="evaluate and write the report at the end"), True),
        keyword("quiet", bool, typer.Option("--quiet", help="no progress display"), False),
    ]


app.command()(with_signature(train, _parameters()))


@app.command()
def views(
    data: Annotated[str, typer.Argument(help="images, as for train")] = "digits",
    out: Annotated[Path, typer.Option(help="picture to write")] = Path("views.png"),
    preset: Annotated[str | None, typer.Option("--views", help="augmentation preset; default by the images")] = None,
    view: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="single strengths")] = None,
    image_size: Annotated[int | None, typer.Option(help="pixels a side", min=4)] = None,
    n: Annotated[int, typer.Option(help="views of each image", min=1)] = 8,
    seed: Annotated[int, typer.Option(help="of every random draw")] = 0,
) -> None:
    """Save a contact sheet: what the network will see."""
    from coulomb.runs.preflight import preview

    used = preview(
        data, out, preset=preset, options=pairs(view or [], "--view flip=0"), image_size=image_size, n=n, seed=seed
    )
    say(f"{out}: each row an image and {n} views of it, preset {used}")


def check(**given: Any) -> None:
    """Look at a data set before hours are spent on it, and show what `train` with the same options would do.

    Corrupt files, exact copies, classes, columns that could be labels, enlarged images; then split, image size, steps,
    time and memory of the training. Exit code 1: `train` would refuse the data or an option.
    """
    from coulomb.api import load_module
    from coulomb.runs.objects import Objects
    from coulomb.runs.preflight import preflight

    as_json = given.pop("as_json")
    options = given_options(given)
    if "data" not in options:
        raise InputError("data: give the images to check: a folder, a list, a Parquet file, …")
    module = load_module(options.get("encoder"))
    if module is not None:
        del options["encoder"]
    result, text = preflight(options, Objects(encoder=module), progress=not as_json)
    say(json.dumps(result) if as_json else text)
    if result["training"]["refused"]:
        raise typer.Exit(1)


as_json = keyword("as_json", bool, typer.Option("--json", help="print one JSON object"), False)
app.command()(with_signature(check, [*config_parameters(without=("out",)), as_json]))
