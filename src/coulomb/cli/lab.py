"""`coulomb lab` and `coulomb bench`."""

import json
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import app, fail, note, parse_pairs, say
from coulomb.cli.options import JSON, examples
from coulomb.errors import InputError, Stopped

_data, _training, _run = (partial(typer.Option, rich_help_panel=panel) for panel in ("Data", "Training", "Run"))


@app.command(
    epilog=examples("coulomb lab temperature --quick", "coulomb lab methods --data photos/ --epochs 20 --seeds 3")
)
def lab(
    experiment: Annotated[str | None, typer.Argument(help="name; without one, all experiments are listed")] = None,
    data: Annotated[str, _data(help="labelled images, as for train")] = "digits",
    test: Annotated[str | None, _data(help="held-out images; default: a split of the data")] = None,
    long_tail: Annotated[str, _data(help="long tail of the experiment longtail")] = "exponential:100",
    quick: Annotated[bool, _training("--quick", help="a few epochs per run: about three minutes for digits")] = False,
    epochs: Annotated[int | None, _training(help="epochs of every run; default: those of its recipe", min=1)] = None,
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

    explore needs no data: it writes an offline page on which points and the temperature can be changed (--out FOLDER or
    FILE.html). doctor trains healthy runs and runs with known problems, and shows what the doctor reports; with --data PHOTOS
    also on photos.
    """
    from coulomb.lab.arms import Settings
    from coulomb.lab.experiment import perform
    from coulomb.lab.experiments import find_experiment, listing
    from coulomb.lab.page import render_text, save_page

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


bench = typer.Typer(
    help="Measure the speed of parts of coulomb against alternatives, interleaved in one process.",
    epilog=examples("coulomb bench losses --quick", "coulomb bench views --json"),
)
app.add_typer(bench, name="bench")


@bench.command("views", epilog=examples("coulomb bench views", "coulomb bench views --json"))
def bench_views_command(as_json: Annotated[bool, JSON] = False) -> None:
    """Measure images per second of the augmentations, compared with kornia."""
    from coulomb.bench.views import bench_views, render

    result = bench_views()
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "streaming", epilog=examples("coulomb bench streaming", "coulomb bench streaming --only throughput --json")
)
def bench_streaming_command(
    only: Annotated[list[str] | None, typer.Option(help="open, throughput or shuffle; may be repeated")] = None,
    images: Annotated[int, typer.Option(help="photos whose reading is timed", min=8)] = 4096,
    side: Annotated[int, typer.Option(help="of these photos in pixels", min=16)] = 384,
    entries: Annotated[int, typer.Option(help="images of the data set that is opened", min=2)] = 1_000_000,
    delay: Annotated[float, typer.Option(help="seconds that the server waits per request", min=0)] = 0.02,
    workers: Annotated[int, typer.Option(help="processes that decode", min=0)] = 1,
    repeats: Annotated[int, typer.Option(help="rounds, of which medians are reported", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option(help="where temporary files go; they take up to 2 GB")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Measure data in shards: a server on loopback beside local files, opening a large table, and the order of images."""
    from coulomb.bench.streaming import bench_streaming, render
    from coulomb.bench.timing import progress

    sizes = {"images": images, "side": side, "entries": entries, "workers": workers, "repeats": repeats}
    with progress(quiet=as_json) as doing:
        result = bench_streaming(only or (), **sizes, delay=delay, folder=folder, say=doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "index", epilog=examples("coulomb bench index", "coulomb bench index --only build --data photos/ --images 2000")
)
def bench_index_command(
    only: Annotated[list[str] | None, typer.Option(help="search, update or build; may be repeated")] = None,
    data: Annotated[str | None, typer.Option(help="images to build an index of; default: generated photos")] = None,
    images: Annotated[int, typer.Option(help="the first images of --data", min=1)] = 1000,
    rows: Annotated[int, typer.Option(help="images of the index that is searched", min=20)] = 1_000_000,
    width: Annotated[int, typer.Option(help="features per image of the index that is searched", min=1)] = 256,
    files: Annotated[int, typer.Option(help="files of the index that is updated", min=1)] = 100_000,
    repeats: Annotated[int, typer.Option(help="rounds, of which medians are reported", min=1)] = 3,
    folder: Annotated[Path | None, typer.Option(help="where temporary files go; they take up to 2 GB")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Measure an index: opening and searching, updating with nothing new, and building beside the encoder alone."""
    from coulomb.bench.index import bench_index, render
    from coulomb.bench.timing import progress

    sizes = {"images": images, "rows": rows, "width": width, "files": files, "repeats": repeats}
    with progress(quiet=as_json) as doing:
        result = bench_index(only or (), data=data, **sizes, folder=folder, say=doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "curation", epilog=examples("coulomb bench curation", "coulomb bench curation train.index --test test.index --json")
)
def bench_curation_command(
    index: Annotated[Path | None, typer.Argument(help="labelled index, for label errors and choosing")] = None,
    test: Annotated[Path | None, typer.Option(help="labelled index of held-out images, for choosing")] = None,
    rows: Annotated[int, typer.Option(help="images of the search for duplicates", min=100)] = 127_000,
    dim: Annotated[int, typer.Option(help="their dimensions", min=16)] = 256,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Measure the search for duplicates, planted label errors (beside cleanlab, if installed), and chosen labels."""
    from coulomb.bench.curation import bench_curation, render
    from coulomb.bench.timing import progress
    from coulomb.index import Index

    opened = [None if path is None else Index.open(path) for path in (index, test)]
    with progress(quiet=as_json) as doing:
        result = bench_curation(*opened, rows=rows, dim=dim, say=doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command("pulse", epilog=examples("coulomb bench pulse", "coulomb bench pulse --json"))
def bench_pulse_command(as_json: Annotated[bool, JSON] = False) -> None:
    """Measure the overhead of the pulse (negatives, gradients, weights) in per cent of a training."""
    from coulomb.bench.pulse import bench_pulse, render

    result = bench_pulse()
    say(json.dumps(result) if as_json else render(result))


@bench.command("memory", epilog=examples("coulomb bench memory", "coulomb bench memory --json"))
def bench_memory_command(as_json: Annotated[bool, JSON] = False) -> None:
    """Measure what it buys to keep the memory of freed tensors, as training does."""
    from coulomb.bench.memory import bench_memory, render

    result = bench_memory()
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "micro-batch", epilog=examples("coulomb bench micro-batch", "coulomb bench micro-batch --large 0 --json")
)
def bench_micro_batch_command(
    encoder: Annotated[str, typer.Option(help="a built-in encoder")] = "resnet18",
    batch: Annotated[int, typer.Option(help="images of the step that is timed", min=2)] = 256,
    micro_batch: Annotated[int, typer.Option(help="views that the encoder takes at a time", min=2)] = 64,
    large: Annotated[int, typer.Option(help="images of the step whose memory is measured; 0: none", min=0)] = 4096,
    repeats: Annotated[int, typer.Option(help="rounds, of which medians are reported", min=1)] = 3,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Measure gradient caching: time of a training step beside the plain one, and memory of a large batch."""
    from coulomb.bench.micro_batch import bench_micro_batch, render
    from coulomb.bench.timing import progress

    with progress(quiet=as_json) as doing:
        result = bench_micro_batch(encoder, batch, micro_batch, large, repeats, doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "losses", epilog=examples("coulomb bench losses --quick", "coulomb bench losses --case ntxent-8192x128 --repeats 9")
)
def bench_losses_command(
    case: Annotated[list[str] | None, typer.Option(help="only this case; may be repeated (see --list)")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a few cases, nothing compiled: about a minute")] = False,
    repeats: Annotated[int, typer.Option(help="rounds, of which medians are reported", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="folder for losses.json and losses.html")] = Path("runs/bench"),
    beside: Annotated[
        list[int] | None,
        typer.Option(help="beside so many busy processes, each measurement in a fresh one; may be repeated"),
    ] = None,
    as_json: Annotated[bool, JSON] = False,
    list_cases: Annotated[bool, typer.Option("--list", help="list the cases and their targets")] = False,
) -> None:
    """Measure time and memory of the losses, compared with other implementations and with matrix products alone."""
    from coulomb.bench.losses import bench_losses, case_listing
    from coulomb.bench.results import render_text, save
    from coulomb.bench.timing import progress

    if list_cases:
        say(case_listing())
        return
    if beside:
        from coulomb.bench.beside import bench_beside, render

        if quick:
            raise InputError("quick: --beside has no quick form; choose --case and --repeats")
        with progress(quiet=as_json) as doing:
            found = bench_beside(beside, case or (), repeats, doing)
        say(json.dumps(found) if as_json else render(found))
        return
    command = shlex.join(["coulomb", *sys.argv[1:]])
    with progress(quiet=as_json) as doing:
        result = bench_losses(case or (), quick=quick, repeats=repeats, command=command, say=doing)
    say(json.dumps(result) if as_json else render_text(result))
    written = " and ".join(map(str, save(result, out)))
    note(f"written: {written}")
