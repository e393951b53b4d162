"""The command line: parse, call, print."""

import dataclasses
import inspect
import itertools
import json
import logging
import shlex
import sys
import typing
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

import coulomb
from coulomb.errors import InputError, NonFiniteError
from coulomb.training.config import Config

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
)


UsageError: Any = typer.BadParameter.__base__  # Typer carries its own copy of click and exports no other name for it


def say(text: str) -> None:
    """Print to standard output."""
    typer.echo(text)


def main() -> None:
    """Entry point: mistakes that the user can mend are one line on stderr and exit code 2."""
    logging.getLogger("coulomb").addHandler(_Console(logging.INFO))
    logging.getLogger("coulomb").setLevel(logging.INFO)
    warnings.showwarning = _one_line_warning
    try:
        code = app(standalone_mode=False) or 0
    except UsageError as error:
        code = _fail(_with_value(error.format_message()), 2)
    except InputError as error:
        code = _fail(str(error), 2)
    except NonFiniteError as error:
        code = _fail(str(error), 1)
    except OSError as error:
        code = _fail(f"{error.filename or 'file system'}: {error.strerror or error}", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted; continue with: coulomb train --resume RUN", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> int:
    print(f"coulomb: error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return code


def _with_value(message: str) -> str:
    """Typer names the option but not what was given for it: add that."""
    for option, value in itertools.pairwise(sys.argv):
        if f"'{option}'" in message and message.startswith("Invalid value"):
            return message.replace(f"'{option}'", f"{option} {value!r}")
    return message


def _one_line_warning(message: Any, category: type, *_: Any, **__: Any) -> None:
    print(f"coulomb: warning: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201


class _Console(logging.Handler):
    """What the library logs, as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.getMessage().startswith("stopped:"):  # said again as the command's own error
            level = "" if record.levelno <= logging.INFO else record.levelname.lower() + ": "
            print(f"coulomb: {level}{record.getMessage()}", file=sys.stderr)  # noqa: T201


def train(**given: Any) -> None:
    """Train an encoder on images, evaluate it beside its baselines, and write a report to look at."""
    if given["quiet"]:
        logging.getLogger("coulomb").handlers[-1].setLevel(logging.WARNING)
    resume, evaluate, given_seeds = given.pop("resume"), given.pop("evaluate"), given.pop("seeds")
    config_file, quiet = given.pop("config"), given.pop("quiet")
    options = {} if config_file is None else _from_file(config_file)
    options |= {name: value for name, value in given.items() if value is not None and value != []}
    if given.get("view_options"):
        options["view_options"] = _pairs(given["view_options"], "--view flip=0")
    if given.get("method_options"):
        options["method_options"] = _pairs(given["method_options"], "--option queue_size=4096")
    if given_seeds or (resume is not None and (resume / "seeds.json").is_file()):
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
        extra = sorted(set(options) - {"encoder"}) + (["seeds"] if seeds else [])
        if extra:
            raise InputError(f"--resume continues the runs with their own options; remove {', '.join(extra)}")
        summary, out = coulomb.train_seeds(resume_from=resume, encoder=options.get("encoder"), progress=not quiet)
    say(summary_table(summary))
    say(f"summary: {out / 'summary.json'}")


def _from_file(path: Path) -> dict[str, Any]:
    from coulomb.training.config import load_config

    return {k: v for k, v in dataclasses.asdict(load_config(path)).items() if k != "out"}


def _pairs(texts: list[str], example: str) -> dict[str, Any]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{example.split(maxsplit=1)[0]} {text!r}: write it as name=value, such as {example}")
        parsed = yaml.safe_load(value)
        pairs[name.strip()] = tuple(parsed) if isinstance(parsed, list) else parsed
    return pairs


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
            made = typer.Argument(help=text + "  [default: digits]", show_default=False)
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


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="run folder, or a folder of several seeds")],
    full: Annotated[bool, typer.Option("--full", help="also fine-tune with 1%, 10%, 100% of the labels: slow")] = False,
    on: Annotated[str | None, typer.Option(help="other labelled images to measure the frozen encoder on")] = None,
    on_test: Annotated[str | None, typer.Option(help="their held-out images; default: a stratified fifth")] = None,
    on_labels: Annotated[str | None, typer.Option(help="column of a table that holds their labels")] = None,
    knn_k: Annotated[int | None, typer.Option(help="neighbours of the kNN; default: the run's", min=1)] = None,
    many_above: Annotated[int | None, typer.Option(help="'many': more training images; default 100", min=0)] = None,
    few_below: Annotated[int | None, typer.Option(help="'few': fewer training images; default 20", min=0)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    encoder: Annotated[str | None, typer.Option(help="my_file.py:MyEncoder, if the run was trained with one")] = None,
) -> None:
    """Measure a run: the trained encoder beside the same untrained and raw pixels, all on frozen features.

    kNN, linear probe (strength chosen on a held-out part of the training images), few-shot, retrieval by class (R@k, MAP@R,
    R-precision), clustering (NMI, ARI, accuracy), the classifier of the run if it trained one, and all of these by class and
    for classes with many, a medium number of and few training images. Figures go to evaluation.json, each with its
    protocol, and into the report.

    --on OTHER measures the encoder on other data, without training it; figures go to transfer/NAME.json. --full trains
    copies of the whole encoder with a share of the labels; the run stays as it is.
    """
    given = {"knn_k": knn_k, "many_above": many_above, "few_below": few_below}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {"on": on, "on_test": on_test, "on_labels": on_labels, "full": full, "encoder": encoder}
    from coulomb.report.tables import evaluation_table, summary_table

    result = coulomb.evaluate(run, **options, progress=not as_json)
    table = summary_table if "seeds" in result else evaluation_table
    say(json.dumps(result) if as_json else table(result))


@app.command()
def doctor(
    run: Annotated[Path, typer.Argument(help="run folder; it may still be training")],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="by the figures in the folder alone, in an instant")] = False,
    encoder: Annotated[str | None, typer.Option(help="my_file.py:MyEncoder, if the run was trained with one")] = None,
) -> None:
    """Say what is wrong with a run, if anything: each verdict with its evidence, consequence and remedy.

    Exit code 0: nothing is sick; 1: something is; 2: the run cannot be read. Verdicts go to doctor.json, and into the report
    when it is written next.
    """
    from coulomb.doctor import render

    found = coulomb.diagnose(run, encoder=encoder, quick=quick, progress=not as_json)
    say(json.dumps(found) if as_json else render(found))
    if not found["healthy"]:
        raise typer.Exit(1)


@app.command()
def embed(
    run: Annotated[Path, typer.Argument(help="run folder")],
    data: Annotated[str, typer.Argument(help="images, as for train")],
    out: Annotated[Path, typer.Option(help="Parquet file to write")],
    workers: Annotated[int, typer.Option(help="processes that decode images", min=0)] = 0,
    encoder: Annotated[str | None, typer.Option(help="my_file.py:MyEncoder, if the run was trained with one")] = None,
) -> None:
    """Write the encoder's features of any images to a Parquet file."""
    from coulomb.api import load_module

    done = coulomb.load(run, load_module(encoder)).embed(data, out, workers=workers)
    for failure in done["failed"]:
        print(f"coulomb: warning: skipped {failure['id']}: {failure['reason']}", file=sys.stderr)  # noqa: T201
    say(f"{done['rows']} rows of {done['features']} features in {out}, {len(done['failed'])} images skipped")


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="run folders; one of several seeds stands for them all")
    ],
    out: Annotated[
        Path | None, typer.Option(help="page to write; default: report.html in the run, or compare.html for several")
    ] = None,
) -> None:
    """Write a run's report.html again, or one page that compares several runs."""
    from coulomb.report import build_comparison, build_report
    from coulomb.training.run_folder import RunFolder
    from coulomb.training.seeds import folder_of, is_plan, planned

    shown = []
    for run in runs:
        shown += [folder_of(run, seed).path for seed in planned(run)[0]] if is_plan(run) else [run]
    for run in shown:
        RunFolder(run).require()
    if len(shown) == 1:
        say(f"report: {build_report(shown[0], out)}")
    else:
        say(f"comparison: {build_comparison(shown, out or Path('compare.html'))}")


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
    from coulomb.training.preview import preview

    used = preview(
        data, out, preset=preset, options=_pairs(view or [], "--view flip=0"), image_size=image_size, n=n, seed=seed
    )
    say(f"{out}: each row an image and {n} views of it, preset {used}")


@app.command()
def check(
    data: Annotated[str, typer.Argument(help="images, as for train")],
    batch_size: Annotated[int, typer.Option(help="images a step", min=2)] = 256,
    method: Annotated[str, typer.Option(help="for the estimates")] = "simclr",
    preset: Annotated[str, typer.Option(help="for the estimates")] = "small",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Look at a data set before hours are spent on it."""
    from coulomb.training.preview import preflight

    result, text = preflight(data, batch_size=batch_size, method=method, preset=preset, progress=not as_json)
    say(json.dumps(result) if as_json else text)


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

    explore needs no data: one offline page to drag points and the temperature on (--out FOLDER or FILE.html).
    """
    from coulomb.lab.experiment import perform
    from coulomb.lab.experiments import experiment_of, listing
    from coulomb.lab.page import save_page
    from coulomb.lab.settings import Settings
    from coulomb.lab.text import render

    if experiment is None:
        say(listing())
        return
    if experiment == "explore":
        from coulomb.lab.explore import build_explorer

        say(f"page: {build_explorer(out if out.suffix == '.html' else out / 'explore' / 'index.html')}")
        return
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
        options=_pairs(option or [], "--set batch_size=128"),
    )
    try:
        result = perform(chosen, settings, ["coulomb", *sys.argv[1:]])
    except KeyboardInterrupt:
        _fail("interrupted; the same command goes on with what is left", 130)
        raise typer.Exit(130) from None
    page = save_page(result, out / experiment)
    say(json.dumps(result) if as_json else render(result))
    print(f"coulomb: page: {page}", file=sys.stderr)  # noqa: T201


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False
) -> None:
    """coulomb: contrastive representation learning, exact at any batch size."""
    if version:
        say(coulomb.__version__)
    elif context.invoked_subcommand is None:
        say(context.get_help())
