"""`coulomb train`."""

import dataclasses
import inspect
import logging
import sys
import typing
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app
from coulomb.cli.console import pairs, say
from coulomb.errors import InputError, Stopped
from coulomb.runs.config import Config


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
    config_file, quiet = given.pop("config"), given.pop("quiet")
    options = {} if config_file is None else _from_file(config_file)
    options |= {name: value for name, value in given.items() if value is not None and value != []}
    if given.get("view_options"):
        options["view_options"] = pairs(given["view_options"], "--view flip=0")
    if given.get("method_options"):
        options["method_options"] = pairs(given["method_options"], "--option queue_size=4096")
    if given_seeds is not None or (resume is not None and (resume / "seeds.json").is_file()):
        _train_seeds(given_seeds, resume, options, evaluate=evaluate, quiet=quiet)
        return
    if resume is not None:
        extra = sorted(set(options) - {"encoder"})
        if extra:
            raise InputError(f"--resume continues a run with its own config.yaml; remove {', '.join(extra)}")
        run = coulomb.train(resume_from=resume, encoder=options.get("encoder"), evaluate=evaluate, progress=not quiet)
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
        extra = sorted(set(options) - {"encoder"}) + (["seeds"] if seeds is not None else [])
        if extra:
            raise InputError(f"--resume continues the runs with their own options; remove {', '.join(extra)}")
        summary, out = coulomb.train_seeds(resume_from=resume, encoder=options.get("encoder"), progress=not quiet)
    say(summary_table(summary))
    say(f"summary: {out / 'summary.json'}")


def _from_file(path: Path) -> dict[str, Any]:
    from coulomb.runs.config import load_config

    return {k: v for k, v in dataclasses.asdict(load_config(path)).items() if k != "out"}


def _train_signature() -> inspect.Signature:
    """The options of ``train``: the fields of ``Config``, so that Python and command line cannot drift apart."""
    hints = typing.get_type_hints(Config)
    parameters = []
    for option in dataclasses.fields(Config):
        kind: Any = hints[option.name] | None
        text = option.metadata["help"]
        if option.metadata.get("choices"):
            text += f" ({', '.join(option.metadata['choices'])})"
        made: Any
        if option.name == "data":
            made = typer.Argument(help=text, show_default=False)
        elif option.name == "view_options":
            kind, made = list[str] | None, typer.Option("--view", help=text, metavar="NAME=VALUE")
        elif option.name == "method_options":
            kind, made = list[str] | None, typer.Option("--option", help=text, metavar="NAME=VALUE")
        else:
            made = typer.Option("--" + option.name.replace("_", "-"), help=text, show_default=False)
        parameters.append(_keyword(option.name, kind, made, None))
    parameters += [
        _keyword("config", Path | None, typer.Option(help="config.yaml of another run to start from"), None),
        _keyword("resume", Path | None, typer.Option(help="run folder to continue after a stop"), None),
        _keyword(
            "seeds",
            int | None,
            typer.Option(help="runs with as many seeds: OUT/seed0, … and their mean ± deviation"),
            None,
        ),
        _keyword("evaluate", bool, typer.Option(help="evaluate and write the report at the end"), True),
        _keyword("quiet", bool, typer.Option("--quiet", help="no progress display"), False),
    ]
    return inspect.Signature(parameters)


def _keyword(name: str, kind: Any, made: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])


_signature = _train_signature()
train.__signature__ = _signature  # type: ignore[attr-defined]
train.__annotations__ = {name: p.annotation for name, p in _signature.parameters.items()}
app.command()(train)
