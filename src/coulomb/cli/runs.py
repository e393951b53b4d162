"""What is done with a finished run: `evaluate`, `doctor`, `embed`, `encode`, `classify`, `report`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, say


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
    method: Annotated[str | None, typer.Option(help="my_file.py:MyMethod, if the run was trained with one")] = None,
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
    options["method"] = method
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
    method: Annotated[str | None, typer.Option(help="my_file.py:MyMethod, if the run was trained with one")] = None,
) -> None:
    """Say what is wrong with a run, if anything: each verdict with its evidence, consequence and remedy.

    Exit code 0: nothing is sick; 1: something is; 2: the run cannot be read. Verdicts go to doctor.json, and into the report
    when it is written next.
    """
    from coulomb.doctor import render

    found = coulomb.diagnose(run, encoder=encoder, method=method, quick=quick, progress=not as_json)
    say(json.dumps(found) if as_json else render(found))
    if not found["healthy"]:
        raise typer.Exit(1)


OWN_ENCODER = typer.Option(help="my_file.py:MyEncoder, if the run was trained with one")
GIVEN = typer.Argument(metavar="IMAGE...", help="image files; or one folder, list, Parquet file, … as for train")


@app.command()
def embed(
    run: Annotated[Path, typer.Argument(help="run folder")],
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="images, as for train; or image files")],
    out: Annotated[Path, typer.Option(help="Parquet file to write")],
    workers: Annotated[int, typer.Option(help="processes that decode images", min=0)] = 0,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
) -> None:
    """Write the encoder's features of any images to a Parquet file."""
    done = _opened(run, encoder).embed(_one_or_many(data), out, workers=workers)
    _tell_failed(done["failed"])
    say(f"{done['rows']} rows of {done['features']} features in {out}, {len(done['failed'])} images skipped")


@app.command()
def encode(
    run: Annotated[Path, typer.Argument(help="run folder")],
    images: Annotated[list[str], GIVEN],
    encoder: Annotated[str | None, OWN_ENCODER] = None,
) -> None:
    """Print the encoder's features of a few images: one JSON object per line, with `id` and `features`.

    The features are those that `embed` writes to a file.
    """
    from coulomb.data.sources import open_files

    opened = _opened(run, encoder)
    source = open_files(_one_or_many(images), labels=False)
    for index, row in enumerate(opened.encode(source).tolist()):
        say(json.dumps({"id": source.item_id(index), "features": row}, ensure_ascii=False))


@app.command()
def classify(
    run: Annotated[Path, typer.Argument(help="run folder")],
    images: Annotated[list[str], GIVEN],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
) -> None:
    """Name the class of images by the classifier that the run kept, with the three most probable classes of each.

    Methods that keep a classifier: supcon, paco, softmax, balanced_softmax, arcface. Images that cannot be read are
    skipped and named; the exit code is 1 if none can be read.
    """
    found = _opened(run, encoder).classify(_one_or_many(images), skip_unreadable=True)
    _tell_failed(found.failed)
    say(json.dumps(found.to_dict(), ensure_ascii=False) if as_json else str(found))
    if not len(found):
        raise typer.Exit(1)


def _opened(run: Path, encoder: str | None) -> "coulomb.Run":
    from coulomb.api import load_module

    return coulomb.load(run, load_module(encoder))


def _one_or_many(given: list[str]) -> str | list[str]:
    return given[0] if len(given) == 1 else given


def _tell_failed(failed: list[dict[str, str]]) -> None:
    for failure in failed:
        print(f"coulomb: warning: skipped {failure['id']}: {failure['reason']}", file=sys.stderr)  # noqa: T201


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
    from coulomb.runs.folder import RunFolder
    from coulomb.runs.seeds import is_plan, planned, seed_folder

    shown = []
    for run in runs:
        shown += [seed_folder(run, seed).path for seed in planned(run)[0]] if is_plan(run) else [run]
    for run in shown:
        RunFolder(run).require()
    if len(shown) == 1:
        say(f"report: {build_report(shown[0], out)}")
    else:
        say(f"comparison: {build_comparison(shown, out or Path('compare.html'))}")
