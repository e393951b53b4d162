"""`coulomb train`, and `check` and `views`, which show the data before training."""

import inspect
import json
import logging
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, note, parse_pairs, say
from coulomb.cli.options import JSON, PAIRS, config_parameters, examples, given_options, keyword, with_signature
from coulomb.ground.errors import InputError, Stopped
from coulomb.models.user_code import is_user_code
from coulomb.training.plan.given import BANK, Given


def train(**given: Any) -> None:
    """Train an encoder on images, evaluate it against its baselines, and write an HTML report."""
    try:
        _train(given)
    except Stopped as error:  # Typer would exit without a message
        note(str(error))
        raise typer.Exit(error.code) from None


def _train(given: dict[str, Any]) -> None:
    from coulomb.training.launch import first_process

    if given["quiet"] or not first_process():
        logging.getLogger("coulomb").handlers[-1].setLevel(logging.WARNING)
    resume, evaluate, seeds, quiet = (given.pop(name) for name in ("resume", "evaluate", "seeds", "quiet"))
    options = given_options(given)
    if seeds is not None or (resume is not None and (resume / "seeds.json").is_file()):
        _train_seeds(seeds, resume, options, evaluate=evaluate, quiet=quiet)
        return
    if resume is not None and (extra := _refused_with_resume(options)):
        raise InputError(f"--resume continues a run with its own config.yaml; remove {', '.join(extra)}")
    run = coulomb.train(resume_from=resume, **options, evaluate=evaluate, progress=not quiet)
    from coulomb.report.tables import evaluation_table

    if not first_process():
        return  # the first of several processes prints for all
    if evaluate:
        from coulomb.evaluation.doctor import verdict_lines

        say(evaluation_table(run.evaluation))
        verdict = run.evaluation.get("verdict") or {}
        say(verdict_lines(run.doctor, verdict.get("next", ())))
        say(f"report: {run.report}")
    if isinstance(run, coulomb.PairRun) and run.has_kind("image") and run.has_kind("text"):
        folder = shlex.quote(str(run.path))
        say(f"search images by words: coulomb index photos/ --encoder {folder}, then coulomb browse photos.index")
    say(f"run folder: {run.path}")


def _train_seeds(
    seeds: int | None, resume: Path | None, options: dict[str, Any], *, evaluate: bool, quiet: bool
) -> None:
    from coulomb.report.tables import summary_table

    if not evaluate:
        raise InputError(
            "--no-evaluate with --seeds: the deviation is computed from the evaluation; leave out one of them"
        )
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
    """Returns the options that --resume refuses: all but the processes, the logger, and the user's own code and files."""
    allowed = {"encoder", "devices", "num_nodes", "logger"}
    if is_user_code(options.get("method", "")):
        allowed.add("method")
    if set(options.get("method_options", {})) == {BANK}:
        allowed.add("method_options")
    return sorted(set(options) - allowed)


def _option(panel: str, name: str, kind: Any, help: str, default: Any, *flags: str) -> inspect.Parameter:
    return keyword(name, kind, typer.Option(*flags, help=help, rich_help_panel=panel), default)


RUN_OPTIONS = [
    _option("Run", "resume", Path | None, "run folder to continue after a stop", None),
    _option("Run", "seeds", int | None, "train this many seeds, in OUT/seed0, …, and report mean ± deviation", None),
    _option("Run", "quiet", bool, "no progress display", False, "--quiet"),
    _option("Evaluation", "evaluate", bool, "evaluate and write the report at the end", True),
]
app.command(
    epilog=examples(
        "coulomb train photos/ --out runs/photos --epochs 50",
        "coulomb train digits --method moco --option queue_size=1024 --seeds 3",
    )
)(with_signature(train, [*config_parameters(), *RUN_OPTIONS]))


def check(**given: Any) -> None:
    """Check a data set, and show what `train` with the same options would do.

    Reports corrupt files, exact copies, classes, columns that could be labels and enlarged images; then the split, the image
    size, and the steps, time and memory of the training. With --columns: what each column holds, cells that repeat, and
    leaks of the split. Exit code 1: `train` would refuse the data or an option.
    """
    from coulomb.training.plan.preflight import preflight
    from coulomb.training.plan.preflight_columns import preflight_columns

    as_json = given.pop("as_json")
    options = given_options(given)
    if "data" not in options:
        raise InputError("data: missing; give the images to check: a folder, a list, a Parquet file, …")
    asked = Given.of(options)
    if asked.named.get("columns") is None:
        result, text = preflight(asked, progress=not as_json)
    else:
        result, text = preflight_columns(asked)
    say(json.dumps(result) if as_json else text)
    if result["training"]["refused"]:
        raise typer.Exit(1)


app.command(
    epilog=examples(
        "coulomb check photos.parquet --labels breed --json",
        "coulomb check pairs.parquet --columns image,caption",
    )
)(with_signature(check, [*config_parameters(without=("out",)), keyword("as_json", bool, JSON, False)]))


@app.command(epilog=examples("coulomb views photos/", "coulomb views digits --view flip=0.5 --out flipped.png"))
def views(
    data: Annotated[str, typer.Argument(help="images, as for train")] = "digits",
    preset: Annotated[
        str | None, typer.Option("--views", help="augmentation preset; default: chosen for the images")
    ] = None,
    view: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="an augmentation strength; may be repeated")
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="side of the views in pixels", min=4)] = None,
    n: Annotated[int, typer.Option(help="views per image", min=1)] = 8,
    out: Annotated[Path, typer.Option(help="picture to write")] = Path("views.png"),
    seed: Annotated[int, typer.Option(help="seed of every random draw")] = 0,
) -> None:
    """Save a contact sheet of the augmented views that the network receives."""
    from coulomb.training.plan.preflight import preview

    options = parse_pairs(view or [], PAIRS["view_options"][1])
    used = preview(data, out, preset=preset, options=options, image_size=image_size, n=n, seed=seed)
    say(f"{out}: one image and {n} views of it per row, preset {used}")
