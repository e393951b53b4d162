"""Data in shards: a server compared with local files, opening a large table, quality of the shuffle.

python -m benchmarks.streaming
"""

import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from benchmarks.command import Folder, Json, Repeats, command, progress, show
from benchmarks.range_server import range_server
from benchmarks.timing import describe_machine, resident_mib
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.tables import Source, image_samples, open_source
from coulomb.tables.shards.blocks import WINDOW
from coulomb.tables.shards.cache import FOLDER
from coulomb.tables.shards.store import find_stamp
from coulomb.tables.shards.table import find_table, make_table
from coulomb.tables.shards.tar import list_tar
from coulomb.tables.split import epoch_order
from coulomb.tables.workers import cores
from coulomb.training.order import RunLoader, RunOrder

PARTS = ("open", "throughput", "shuffle")
PHOTOS = 64  # distinct generated photos


def bench_streaming(
    only: Sequence[str] = (),
    *,
    images: int = 4096,
    side: int = 384,
    entries: int = 1_000_000,
    delay: float = 0.02,
    workers: int = 1,
    repeats: int = 3,
    folder: Path | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Measures data sets in tar shards; everything is written to a temporary folder.

    - ``open``: seconds to open a data set of ``entries`` images from its tables, and the memory afterwards, also after
      reading 200 batches.
    - ``throughput``: images per second of one epoch in the order of training, decoded to canvases of 64 pixels, from local
      shards and from a server on loopback with a ``delay`` per request and an empty cache.
    - ``shuffle``: probability that two neighbors in a batch share a class, for labels in random order and for shards
      sorted by class, against a true shuffle.

    Args:
        only: parts to measure; default: all.
        images: of ``throughput``; generated JPEG photos.
        side: of these photos in pixels.
        entries: images of ``open`` and ``shuffle``.
        delay: of the server in seconds.
        workers: processes that decode in ``throughput``, in addition to the process that reads ahead.
        repeats: rounds, of which medians are reported.
        folder: where the temporary folder is made; default: the system's.
        say: called with progress messages.

    Returns:
        ``{"machine", "repeats", part: {…}}``.
    """
    if unknown := sorted(set(only) - set(PARTS)):
        raise InputError(f"only={unknown[0]!r}: must be one of {', '.join(PARTS)}")
    result: dict[str, Any] = {"machine": describe_machine(), "repeats": repeats}
    with tempfile.TemporaryDirectory(dir=folder) as name, _cache_in(Path(name) / "cache"):
        for part in only or PARTS:
            say(part)
            if part == "throughput":
                result[part] = _throughput(Path(name), images, side, delay, workers, repeats, say)
            elif part == "open":
                result[part] = _open(Path(name) / "open", entries, repeats)
            else:
                result[part] = _shuffle(Path(name) / "shuffle", entries)
    return result


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        yield
    finally:
        del os.environ[FOLDER]
        if before is not None:
            os.environ[FOLDER] = before


def photo(side: int, seed: int) -> bytes:
    """Returns a JPEG of smooth noise, with about as many bytes as a photo of that size."""
    draw = np.random.default_rng(seed)
    small = Image.fromarray(draw.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize((side, side), Image.Resampling.BICUBIC)).astype(np.int16)
    pixels = np.clip(pixels + draw.integers(-12, 13, pixels.shape), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """Writes a tar file of members given by name and content; returns its path."""
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_shard(path: Path, contents: Sequence[bytes], labels: Sequence[int]) -> None:
    """Writes a tar file with a ``.jpg`` and a ``.cls`` member per image."""
    members = []
    for number, (content, label) in enumerate(zip(contents, labels, strict=True)):
        members += [(f"{number:06d}.jpg", content), (f"{number:06d}.cls", str(label).encode())]
    write_tar(path, members)


def _many(folder: Path, entries: int, content: bytes) -> Source:
    """Opens ``entries`` images in shards of 1,000 that are links to one file; each shard has its own table and class."""
    folder.mkdir()
    each = min(1000, entries)
    write_shard(folder / "first", [content] * each, [0] * each)
    data = (folder / "first").read_bytes()
    listing = list_tar(lambda start, end: data[start:end], len(data))
    for number in range(entries // each):
        path = folder / f"train-{number:05d}.tar"
        path.hardlink_to(folder / "first")
        listing.columns["cls"] = [str(number)] * each
        table = make_table(listing)
        find_table(str(path), find_stamp(str(path)), lambda table=table: table)  # type: ignore[misc]
    return open_source(f"{folder}/train-*.tar")


def _open(folder: Path, entries: int, repeats: int) -> dict[str, Any]:
    entries -= entries % 1000 if entries > 1000 else 0
    _many(folder, entries, photo(32, 0))
    seconds = []
    before = resident_mib()
    for _ in range(repeats):
        start = time.perf_counter()
        source = open_source(f"{folder}/train-*.tar")
        seconds.append(time.perf_counter() - start)
    opened = resident_mib()
    order = RunOrder(np.arange(len(source)), min(256, len(source)), 1, 0, blocks=source.blocks)
    memory = []
    data = image_samples(source, 32, dtype="uint8")
    for step, batch in enumerate(order):
        data.__getitems__(batch)
        memory.append(resident_mib())
        if step == 200:
            break
    half = memory[len(memory) // 2 :]
    return {
        "entries": len(source),
        "seconds": median(seconds),
        "mib": opened - before,
        "mib_after_half": half[0] - before,
        "mib_at_the_end": half[-1] - before,
        "batches": len(memory),
    }


def _throughput(
    folder: Path, images: int, side: int, delay: float, workers: int, repeats: int, say: Callable[[str], object]
) -> dict[str, Any]:
    shards = folder / "shards"
    shards.mkdir()
    photos = [photo(side, seed) for seed in range(min(PHOTOS, images))]
    each = max(1, min(256, images // 8))
    count = images // each
    for number in range(count):
        chosen = range(number * each, (number + 1) * each)
        write_shard(
            shards / f"train-{number:04d}.tar", [photos[i % len(photos)] for i in chosen], [i % 10 for i in chosen]
        )
    names = f"train-{{0000..{count - 1:04d}}}.tar"
    seconds: dict[str, list[float]] = {"local": [], "remote": []}
    first = []
    workers = min(workers, cores())
    with range_server(shards, delay) as address:
        for repeat in range(repeats):
            for kind in ("local", "remote") if repeat % 2 else ("remote", "local"):
                say(f"throughput, {kind}, round {repeat + 1} of {repeats}")
                os.environ[FOLDER] = str(folder / "cache" / f"round-{repeat}")
                source = open_source(f"{shards}/{names}" if kind == "local" else f"{address}/{names}")
                taken, until_first = _one_epoch(source, workers)
                seconds[kind].append(taken)
                if kind == "remote":
                    first.append(until_first)
    speed = {kind: count * each / median(taken) for kind, taken in seconds.items()}
    return {
        "images": count * each,
        "bytes_per_image": round(sum(map(len, photos)) / len(photos)),
        "side": side,
        "delay": delay,
        "workers": workers,
        "window_mib": WINDOW // 2**20,
        "images_per_second": speed,
        "ratio": speed["remote"] / speed["local"],
        "ratios": [local / far for local, far in zip(seconds["local"], seconds["remote"], strict=True)],
        "first_batch": median(first),
    }


def _one_epoch(source: Source, workers: int) -> tuple[float, float]:
    """Returns the seconds of an epoch in the order of training, and those until its first batch."""
    order = RunOrder(np.arange(len(source)), min(64, len(source)), 1, 0, blocks=source.blocks)
    loader = RunLoader(image_samples(source, 64, dtype="uint8"), order, workers)
    first = None
    start = time.perf_counter()
    for _ in loader:
        first = first or time.perf_counter() - start
    return time.perf_counter() - start, first or 0.0


def _shuffle(folder: Path, entries: int, batch: int = 256) -> dict[str, Any]:
    entries -= entries % 1000 if entries > 1000 else 0
    source = _many(folder, entries, photo(160, 0))
    assert source.blocks is not None and source.labels is not None
    images = np.arange(len(source))
    shuffled = epoch_order(images, None, "uniform", numpy_generator(0, "order", 0))
    arranged = source.blocks.arrange(shuffled, numpy_generator(0, "blocks", 0))
    mixed = numpy_generator(0, "mixed").permutation(source.labels)
    return {
        "entries": len(source),
        "classes": len(np.unique(source.labels)),
        "batch": min(batch, len(source)),
        "blocks": len(source.blocks.shard),
        "windows": int(-(-source.blocks.sizes.sum() // source.blocks.window)),
        "same_class": {
            "true shuffle": same_class(source.labels[shuffled], batch),
            "windows, random shards": same_class(mixed[arranged], batch),
            "windows, a class per shard": same_class(source.labels[arranged], batch),
        },
        "distinct_classes": {
            "true shuffle": distinct_classes(source.labels[shuffled], batch),
            "windows, random shards": distinct_classes(mixed[arranged], batch),
            "windows, a class per shard": distinct_classes(source.labels[arranged], batch),
        },
    }


def same_class(labels: np.ndarray, batch: int) -> float:
    """Returns the probability that two different images of a batch share a class, over all full batches."""
    batch = min(batch, len(labels))
    rows = np.sort(labels[: len(labels) // batch * batch].reshape(-1, batch), axis=1)
    pairs = 0
    for row in rows:
        counts = np.unique(row, return_counts=True)[1].astype(np.int64)
        pairs += int((counts * (counts - 1)).sum())
    return pairs / (len(rows) * batch * max(1, batch - 1))


def distinct_classes(labels: np.ndarray, batch: int) -> float:
    """Returns the mean number of classes in a batch."""
    batch = min(batch, len(labels))
    rows = np.sort(labels[: len(labels) // batch * batch].reshape(-1, batch), axis=1)
    return float(1 + (np.diff(rows, axis=1) != 0).sum(1).mean())


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_streaming` as text."""
    about = result["machine"]
    lines = [f"{about['processor']}, {about['threads']} threads, median of {result['repeats']}"]
    if "open" in result:
        part = result["open"]
        lines.append(
            f"opening {part['entries']:,} images from their tables{part['seconds']:8.2f} s, {part['mib']:,.0f} MiB"
        )
        lines.append(
            f"    memory after {part['batches'] // 2} and {part['batches']} batches: {part['mib_after_half']:,.0f} and "
            f"{part['mib_at_the_end']:,.0f} MiB"
        )
    if "throughput" in result:
        part = result["throughput"]
        lines.append(
            f"one epoch of {part['images']:,} photos of {part['side']} pixels ({part['bytes_per_image']:,} bytes), "
            f"{part['workers']} workers; the server waits {1000 * part['delay']:g} ms per request"
        )
        lines += [f"    {kind:8}{speed:10,.1f} images/s" for kind, speed in part["images_per_second"].items()]
        lines.append(
            f"    remote at {100 * part['ratio']:.0f}% of local (rounds: "
            f"{', '.join(f'{100 * each:.0f}%' for each in part['ratios'])}); first batch after {part['first_batch']:.2f} s"
        )
    if "shuffle" in result:
        part = result["shuffle"]
        lines.append(
            f"order of {part['entries']:,} images of {part['classes']:,} classes in {part['blocks']:,} blocks, "
            f"{part['windows']:,} windows; batches of {part['batch']}"
        )
        for kind, probability in part["same_class"].items():
            lines.append(
                f"    {kind:28} two images share a class: {probability:.5f}; classes per batch: "
                f"{part['distinct_classes'][kind]:.1f}"
            )
    return "\n".join(lines)


def main(
    only: Annotated[list[str] | None, typer.Option(help="open, throughput or shuffle; may be repeated")] = None,
    images: Annotated[int, typer.Option(help="photos whose reading is timed", min=8)] = 4096,
    side: Annotated[int, typer.Option(help="of these photos in pixels", min=16)] = 384,
    entries: Annotated[int, typer.Option(help="images of the data set that is opened", min=2)] = 1_000_000,
    delay: Annotated[float, typer.Option(help="seconds that the server waits per request", min=0)] = 0.02,
    workers: Annotated[int, typer.Option(help="processes that decode", min=0)] = 1,
    repeats: Repeats = 3,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure data in shards: a server compared with local files, opening a large table, and the order of images."""
    sizes = {"images": images, "side": side, "entries": entries, "workers": workers, "repeats": repeats}
    with progress(quiet=as_json) as doing:
        result = bench_streaming(only or (), **sizes, delay=delay, folder=folder, say=doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--only throughput --json")
