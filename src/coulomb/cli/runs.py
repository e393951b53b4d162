"""Commands for finished runs and published weights: `evaluate`, `doctor`, `report`, `embed`, `encode`, `classify`."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import coulomb
from coulomb.cli.app import app, note, say
from coulomb.cli.index import LIST, ROOT
from coulomb.cli.options import JSON, OWN_ENCODER, OWN_METHOD, examples
from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import visible

if TYPE_CHECKING:
    from coulomb.models.image_encoder import ImageEncoder

ENCODER = typer.Argument(
    metavar="RUN", help="run folder; or published weights: lite0, hf:NAME@weights, timm:NAME@weights, a local folder"
)
ON_TEST = typer.Option("--on-test", "--test", help="held-out images of --on; default: a stratified fifth")
ON_LABELS = typer.Option("--on-labels", "--labels", help="column of a table that holds the labels of --on")
ON_GROUP = typer.Option(
    "--on-group", "--group", help="split --on by group: images with the same column, folder or name stay on one side"
)
IMAGE_SIZE = typer.Option(
    help="for published weights: side of the input in pixels; default: the size of the weights", min=4
)
_index = partial(typer.Option, rich_help_panel="Index")
IMAGES = typer.Argument(metavar="IMAGE...", help="image files; or one folder, list, Parquet file, … as for train")


@app.command(
    epilog=examples(
        "coulomb evaluate runs/photos --on other/ --on-test other-test/",
        "coulomb evaluate lite0 --on photos/ --image-size 128",
        "coulomb evaluate runs/texts --pairs sts.csv",
    )
)
def evaluate(
    run: Annotated[
        str,
        typer.Argument(
            help="run folder, or a folder of several seeds; with --on or --pairs, also published weights: lite0, …"
        ),
    ],
    full: Annotated[bool, typer.Option("--full", help="also fine-tune with 1%, 10%, 100% of the labels: slow")] = False,
    on: Annotated[str | None, typer.Option(help="other labeled images to evaluate the frozen encoder on")] = None,
    on_test: Annotated[str | None, ON_TEST] = None,
    on_labels: Annotated[str | None, ON_LABELS] = None,
    on_group: Annotated[str | None, ON_GROUP] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            help="with --on, of a run on images and texts: text with {} for the name of a class; may be repeated; default: "
            "a photo of a {}"
        ),
    ] = None,
    pairs: Annotated[
        str | None,
        typer.Option(help="pairs of texts with a score of their similarity to evaluate the frozen encoder on"),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="columns of --pairs; default: read from it", metavar="FIRST,SECOND,SCORE")
    ] = None,
    tower: Annotated[
        str | None,
        typer.Option(help="with --pairs, the column of the run whose encoder is measured; default: the first of texts"),
    ] = None,
    knn_k: Annotated[
        int | None,
        typer.Option(
            help="neighbors of the kNN; default: the run's, with --on by the number of images: 200 or 20", min=1
        ),
    ] = None,
    many_above: Annotated[
        int | None, typer.Option(help="'many' classes have more training images; default: 100", min=0)
    ] = None,
    few_below: Annotated[
        int | None, typer.Option(help="'few' classes have fewer training images; default: 20", min=0)
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="for published weights: side of the input in pixels; default: the size that train chooses for --on",
            min=4,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="for published weights: JSON file to write the results to")] = None,
    as_json: Annotated[bool, JSON] = False,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
    method: Annotated[str | None, OWN_METHOD] = None,
) -> None:
    """Evaluate a run: the trained encoder, the weights it started from, the untrained network, and raw pixels.

    All are measured on frozen features of the same images.

    Measures kNN, linear probe (regularization chosen on a held-out part of the training images), few-shot, retrieval by class
    (R@k, MAP@R, R-precision), clustering (NMI, ARI, accuracy) and the run's classifier, if any; overall, per class, and for
    classes with many, a medium number of and few training images. Results go to evaluation.json with their protocol, and
    into the report.

    --on OTHER evaluates the encoder on other data without training it; results go to transfer/NAME.json. --full fine-tunes
    copies of the encoder with a fraction of the labels; the run is not changed. Of a run on images and texts, --on measures
    the image tower, and the accuracy of the names of the classes alone, without any image of OTHER (zero-shot).

    --pairs FILE measures an encoder of texts, of a run or published, by pairs with a score of their similarity (columns such
    as sentence1, sentence2, score): Spearman's and Pearson's correlation of cosines and scores, with 95% intervals.

    Published weights (lite0 --on PHOTOS) are measured without training, next to the same network with random weights and raw
    pixels; photos are read at their original resolution and prepared as the weights expect. Results are written only to --out.
    """
    given = {"knn_k": knn_k, "many_above": many_above, "few_below": few_below}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options |= {"on": on, "on_test": on_test, "on_labels": on_labels, "on_group": on_group}
    options |= {"full": full, "encoder": encoder, "prompts": prompts or None}
    options |= {"image_size": image_size, "out": out, "pairs": pairs, "columns": columns, "tower": tower}
    from coulomb.report.tables import evaluation_table, summary_table

    result = coulomb.evaluate(run, **options, method=method, progress=not as_json)
    if not result:
        return  # the first process of torchrun prints the result
    _warn_skipped(result.get("failed", []))
    table = summary_table if "seeds" in result else evaluation_table
    say(json.dumps(result) if as_json else table(result))


@app.command(epilog=examples("coulomb doctor runs/photos", "coulomb doctor runs/photos --quick --json"))
def doctor(
    run: Annotated[Path, typer.Argument(help="run folder; it may still be training")],
    quick: Annotated[bool, typer.Option("--quick", help="use the run's files only: takes an instant")] = False,
    as_json: Annotated[bool, JSON] = False,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
    method: Annotated[str | None, OWN_METHOD] = None,
) -> None:
    """Diagnose a run: each problem with its evidence, consequence and remedy.

    Exit code 0: no problem; 1: at least one problem; 2: the run cannot be read. The verdicts go to doctor.json, and into the
    report the next time it is written.
    """
    from coulomb.evaluation.doctor import render

    diagnosis = coulomb.diagnose(run, encoder=encoder, method=method, quick=quick, progress=not as_json)
    say(json.dumps(diagnosis) if as_json else render(diagnosis))
    if not diagnosis["healthy"]:
        raise typer.Exit(1)


@app.command(epilog=examples("coulomb report runs/photos", "coulomb report runs/simclr runs/moco --out both.html"))
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="run folders; a folder of several seeds stands for all of them"),
    ],
    out: Annotated[
        Path | None, typer.Option(help="page to write; default: report.html in the run, or compare.html for several")
    ] = None,
) -> None:
    """Write a run's report.html again, or one page that compares several runs."""
    from coulomb.report import build_comparison, build_report
    from coulomb.training.record.folder import RunFolder
    from coulomb.training.record.seeds import has_seeds, saved_seeds, seed_folder

    shown = []
    for run in runs:
        shown += [seed_folder(run, seed).path for seed in saved_seeds(run)[0]] if has_seeds(run) else [run]
    for run in shown:
        RunFolder(run).require()
    if len(shown) == 1:
        say(f"report: {build_report(shown[0], out)}")
    else:
        say(f"comparison: {build_comparison(shown, out or Path('compare.html'))}")


@app.command(
    epilog=examples(
        "coulomb embed runs/photos more-photos/ --out features.parquet",
        "coulomb embed lite0 photos/ --image-size 128 --out features.parquet",
    )
)
def embed(
    run: Annotated[str, ENCODER],
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help="images, as for train; or image files")],
    out: Annotated[Path, typer.Option(help="Parquet file to write")],
    image_size: Annotated[int | None, IMAGE_SIZE] = None,
    workers: Annotated[
        int | None, typer.Option(help="processes that decode images; default: the number of cores", min=0)
    ] = None,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
) -> None:
    """Write the encoder's features of any images to a Parquet file.

    Images are prepared as in the evaluation of the run; for published weights, at their original resolution and as the
    weights expect.
    """
    from coulomb.tables.workers import cores

    workers = cores() if workers is None else workers
    result = _load(run, encoder, image_size).embed(_one_or_many(data), out, workers=workers)
    _warn_skipped(result["failed"])
    rows, skipped = counted(result["rows"], "row"), counted(len(result["failed"]), "image")
    say(f"{rows} of {result['features']} features in {out}, {skipped} skipped")


@app.command(epilog=examples("coulomb encode runs/photos a.jpg b.jpg", "coulomb encode runs/photos a.jpg > a.jsonl"))
def encode(
    run: Annotated[str, ENCODER],
    images: Annotated[list[str], IMAGES],
    image_size: Annotated[int | None, IMAGE_SIZE] = None,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
) -> None:
    """Print the encoder's features of a few images: one JSON object per line, with `id` and `features`.

    `embed` writes the same features to a file.
    """
    from coulomb.tables.sources import open_files

    loaded = _load(run, encoder, image_size)
    source = open_files(_one_or_many(images), labels=False)
    for index, row in enumerate(loaded.encode(source).tolist()):
        say(json.dumps({"id": source.item_id(index), "features": row}, ensure_ascii=False))


@app.command(
    epilog=examples(
        "coulomb classify photos.index --labels few.csv --out classes.csv",
        'coulomb classify photos.index --names "cat,dog,neither=an empty room"',
    )
)
def classify(
    run: Annotated[str, typer.Argument(metavar="RUN|INDEX", help="run folder; or an index, with --labels or --names")],
    images: Annotated[list[str] | None, IMAGES] = None,
    labels: Annotated[
        Path | None, _index(help="CSV or Parquet file with columns id and label, for some images of the index")
    ] = None,
    names: Annotated[
        str | None,
        _index(help="classes by words instead of labels: cat,dog,neither=an empty room", metavar="NAME[=WORDS],…"),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        _index(help="text of --names, with {} for the name; may be repeated; default: a photo of a {}"),
    ] = None,
    accuracy: Annotated[
        float | None,
        _index(
            help="held-out accuracy of the images not marked unsure; default: half the error rate of all, at most 0.95"
        ),
    ] = None,
    root: Annotated[Path | None, ROOT] = None,
    out: Annotated[Path | None, LIST] = None,
    as_json: Annotated[bool, JSON] = False,
    encoder: Annotated[str | None, OWN_ENCODER] = None,
) -> None:
    """Classify images with the classifier of a run; or the images of an index, by labels of some of them or by words.

    RUN IMAGE... prints the three most probable classes of each image; methods with a classifier: supcon, paco, softmax,
    balanced_softmax, arcface. Unreadable images are skipped with a warning; the exit code is 1 if none can be read.

    INDEX --labels FILE trains a linear probe on the labeled images, classifies all others, and marks an image as unsure if
    its margin is below a threshold, which cross-validation chooses for the given accuracy.

    INDEX --names cat,dog needs no labels, but an index that was built with a run on images and captions. Every image gets one
    of the names: give one for all others, with words of its own.
    """
    if (Path(run).expanduser() / "index.json").is_file():
        from coulomb.cli.curate import classify_index

        if images or encoder is not None:
            raise InputError(f"{'IMAGE' if images else '--encoder'}: has no meaning for an index; leave it out")
        by = {"labels": labels, "names": names, "prompts": prompts or None, "accuracy": accuracy}
        classify_index(Path(run), by, root, out, as_json)
        return
    if labels is not None or root is not None or out is not None:
        raise InputError(
            f"{visible(run)}: is not an index, which --labels, --root and --out need; coulomb index makes one"
        )
    if names is not None or prompts:
        raise InputError(
            f"{visible(run)}: is not an index, which --names and --prompts need; make one: coulomb index photos/ --encoder RUN"
        )
    if not images:
        raise InputError("IMAGE: missing; name image files, or one folder, list or Parquet file")
    result = _load(run, encoder).classify(_one_or_many(images), skip_unreadable=True)
    _warn_skipped(result.failed)
    say(json.dumps(result.to_dict(), ensure_ascii=False) if as_json else str(result))
    if not len(result):
        raise typer.Exit(1)


def _load(run: str, encoder: str | None, image_size: int | None = None) -> "ImageEncoder":
    from coulomb.models.load import of_images
    from coulomb.training.plan.given import load_module

    return of_images(coulomb.load(run, load_module(encoder), image_size=image_size))


def _one_or_many(given: list[str]) -> str | list[str]:
    return given[0] if len(given) == 1 else given


def _warn_skipped(failed: list[dict[str, str]]) -> None:
    for failure in failed:
        note(f"warning: skipped {failure['id']}: {failure['reason']}")
