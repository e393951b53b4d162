"""Benchmarks from the command line: `python -m benchmarks losses`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from coulomb.cli.app import note, say
from coulomb.cli.options import JSON, examples
from coulomb.ground.errors import InputError

bench = typer.Typer(
    help="Measure the speed of parts of coulomb against alternatives, interleaved in one process.",
    epilog=examples("python -m benchmarks losses --quick", "python -m benchmarks views --json"),
)


@bench.command("views", epilog=examples("python -m benchmarks views", "python -m benchmarks views --json"))
def bench_views_command(as_json: Annotated[bool, JSON] = False) -> None:
    """Measure images per second of the augmentations, compared with kornia."""
    from benchmarks.views import bench_views, render

    result = bench_views()
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "streaming",
    epilog=examples("python -m benchmarks streaming", "python -m benchmarks streaming --only throughput --json"),
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
    from benchmarks.streaming import bench_streaming, render
    from benchmarks.timing import progress

    sizes = {"images": images, "side": side, "entries": entries, "workers": workers, "repeats": repeats}
    with progress(quiet=as_json) as doing:
        result = bench_streaming(only or (), **sizes, delay=delay, folder=folder, say=doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "index",
    epilog=examples(
        "python -m benchmarks index", "python -m benchmarks index --only build --data photos/ --images 2000"
    ),
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
    from benchmarks.index import bench_index, render
    from benchmarks.timing import progress

    sizes = {"images": images, "rows": rows, "width": width, "files": files, "repeats": repeats}
    with progress(quiet=as_json) as doing:
        result = bench_index(only or (), data=data, **sizes, folder=folder, say=doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "curation",
    epilog=examples(
        "python -m benchmarks curation", "python -m benchmarks curation train.index --test test.index --json"
    ),
)
def bench_curation_command(
    index: Annotated[Path | None, typer.Argument(help="labeled index, for label errors and choosing")] = None,
    test: Annotated[Path | None, typer.Option(help="labeled index of held-out images, for choosing")] = None,
    rows: Annotated[int, typer.Option(help="images of the search for duplicates", min=100)] = 127_000,
    dim: Annotated[int, typer.Option(help="their dimensions", min=16)] = 256,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Measure the search for duplicates, planted label errors (beside cleanlab, if installed), and chosen labels."""
    from benchmarks.curation import bench_curation, render
    from benchmarks.timing import progress
    from coulomb.index import Index

    opened = [None if path is None else Index.open(path) for path in (index, test)]
    with progress(quiet=as_json) as doing:
        result = bench_curation(*opened, rows=rows, dim=dim, say=doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command("pulse", epilog=examples("python -m benchmarks pulse", "python -m benchmarks pulse --json"))
def bench_pulse_command(as_json: Annotated[bool, JSON] = False) -> None:
    """Measure the overhead of the pulse (negatives, gradients, weights) in per cent of a training."""
    from benchmarks.pulse import bench_pulse, render

    result = bench_pulse()
    say(json.dumps(result) if as_json else render(result))


@bench.command("memory", epilog=examples("python -m benchmarks memory", "python -m benchmarks memory --json"))
def bench_memory_command(as_json: Annotated[bool, JSON] = False) -> None:
    """Measure what it buys to keep the memory of freed tensors, as training does."""
    from benchmarks.memory import bench_memory, render

    result = bench_memory()
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "micro-batch",
    epilog=examples("python -m benchmarks micro-batch", "python -m benchmarks micro-batch --large 0 --json"),
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
    from benchmarks.micro_batch import bench_micro_batch, render
    from benchmarks.timing import progress

    with progress(quiet=as_json) as doing:
        result = bench_micro_batch(encoder, batch, micro_batch, large, repeats, doing)
    say(json.dumps(result) if as_json else render(result))


@bench.command(
    "losses",
    epilog=examples(
        "python -m benchmarks losses --quick", "python -m benchmarks losses --case ntxent-8192x128 --repeats 9"
    ),
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
    from benchmarks.losses import bench_losses, case_listing
    from benchmarks.results import render_text, save
    from benchmarks.timing import progress

    if list_cases:
        say(case_listing())
        return
    if beside:
        from benchmarks.beside import bench_beside, render

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


if __name__ == "__main__":
    bench()
