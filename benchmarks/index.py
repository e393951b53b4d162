"""Speed of an index, building, updating, opening and searching: ``python -m benchmarks.index``."""

import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image
from torch.nn import functional

import coulomb
from benchmarks.command import Folder, Json, Repeats, command, progress, show
from benchmarks.timing import describe_machine, interleaved, resident_mib
from coulomb.ground.errors import InputError
from coulomb.ground.machine import keep_freed_memory
from coulomb.index import Index
from coulomb.index.contents import checksums
from coulomb.index.embed import place
from coulomb.index.encoders import describe
from coulomb.index.folder import FORMAT, IndexFolder
from coulomb.index.table import Photo, make_table, schema
from coulomb.kinds.image import OriginalImage
from coulomb.models.load import of_images
from coulomb.tables import Samples, open_source
from coulomb.tables.images import images_per_batch
from coulomb.tables.workers import cores
from coulomb.training.run import load

SIDE = 96  # pixels of lite0's input
TOP = 20
PARTS = ("search", "update", "build")


def bench_index(
    only: Sequence[str] = (),
    *,
    data: Any = None,
    images: int = 1000,
    rows: int = 1_000_000,
    width: int = 256,
    files: int = 100_000,
    repeats: int = 3,
    folder: Path | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Measures an index; everything is written to a temporary folder.

    - ``search``: an index of ``rows`` random vectors of ``width`` in float16: opening, one query, 1,000 queries at once.
    - ``update``: an index of ``files`` files, none of which has changed.
    - ``build``: lite0 at 96 pixels: images per second of a complete build, and of the encoder alone on prepared
      images, with its batch norms, which an index folds.

    Args:
        only: parts to measure; default: all.
        data: images for ``build``; default: generated photos of 267×200 pixels.
        images: number of images that are taken from ``data``, from the first on.
        rows, width: size of the index that is searched.
        files: of the index that is updated.
        repeats: rounds, of which medians are reported.
        folder: where the temporary folder is made; default: the system's.
        say: called with progress messages.

    Returns:
        ``{"machine", "repeats", part: {…}}``, times in seconds.
    """
    if unknown := sorted(set(only) - set(PARTS)):
        raise InputError(f"only={unknown[0]!r}: must be one of {', '.join(PARTS)}")
    result: dict[str, Any] = {"machine": describe_machine(), "repeats": repeats}
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place_for = Path(name)
        for part in only or PARTS:
            say(part)
            if part == "search":
                result[part] = bench_search(place_for / "searched", rows, width, repeats)
            elif part == "update":
                result[part] = bench_update(place_for, files, repeats)
            else:
                result[part] = bench_build(place_for, data, images, repeats)
    return result


def bench_search(path: Path, rows: int, width: int, repeats: int) -> dict[str, Any]:
    """Measures opening and searching; also returns the smallest agreement of 8 queries with float64."""
    write_random(path, rows, width)
    index = Index.open(path)
    queries = functional.normalize(torch.randn(1000, width, generator=torch.Generator().manual_seed(1)), dim=1)
    runs = {
        "open": lambda: Index.open(path),
        "one query": lambda: index.neighbors(queries[:1], TOP),
        "1,000 queries": lambda: index.neighbors(queries, TOP),
    }
    seconds = {name: median(taken) for name, taken in interleaved(runs, repeats).items()}
    best = np.sort(np.concatenate([
        np.asarray(index.features[start : start + 100_000], np.float64) @ queries[:8].double().numpy().T
        for start in range(0, rows, 100_000)
    ]), axis=0)[::-1][:TOP].T  # fmt: skip
    error = np.abs(index.neighbors(queries[:8], TOP)[0].numpy() - best).max()
    return {"rows": rows, "width": width, "seconds": seconds, "error": float(error)}


def write_random(path: Path, rows: int, width: int) -> None:
    """Writes an index of random unit vectors in float16, without images."""
    import pyarrow as pa

    random = torch.Generator().manual_seed(0)
    ids = [f"{row:08d}" for row in range(rows)]
    columns = {
        "id": ids,
        **dict.fromkeys(("path", "label", "bytes", "sha256", "mtime", "width", "height"), [None] * rows),
    }
    table = pa.table([pa.array(columns[field.name], field.type) for field in schema()], schema=schema())
    encoder = {"name": "random", "fingerprint": "", "image_size": 1, "canvas": None}
    _write(path, table, rows, width, encoder, {"name": "random", "root": None}, random)


def bench_update(folder: Path, files: int, repeats: int) -> dict[str, Any]:
    """Measures updates of an index of small files with nothing new; its features are random."""
    photos = folder / "photos"
    content = _jpeg(np.random.default_rng(0), 32, 32)
    for number in range(files):
        file = photos / f"{number // 1000:03d}" / f"{number:06d}.jpg"
        if not number % 1000:
            file.parent.mkdir(parents=True)
        file.write_bytes(content)
    source = open_source(photos)
    opened = of_images(load("lite0", image_size=SIDE))
    stamps = source.stamps()
    assert stamps is not None
    facts = [Photo(len(content), "0" * 64, mtime, 32, 32) for _, mtime in stamps]
    data = {"name": source.name, "root": str(source.root)}
    table = make_table(source, range(files), facts)
    path = folder / "updated"
    _write(path, table, files, opened.encoder.feature_dim, describe(opened), data, torch.Generator().manual_seed(0))
    taken = interleaved({"update": lambda: Index.build(photos, path, progress=False)}, repeats)["update"]
    assert len(Index.open(path)) == files
    return {"files": files, "seconds": median(taken)}


def bench_build(folder: Path, data: Any, images: int, repeats: int) -> dict[str, Any]:
    """Measures complete builds, interleaved with the encoder alone on prepared images."""
    photos = folder / "photographs"
    photos.mkdir()
    given = None if data is None else open_source(data)
    random = np.random.default_rng(0)
    for number in range(images if given is None else min(images, len(given))):
        content = _jpeg(random, 267, 200) if given is None else given.content(number)
        (photos / f"{number:06d}.jpg").write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    source = open_source(photos)
    keep_freed_memory()
    opened = of_images(load("lite0", image_size=SIDE))
    encoder = place(opened.encoder, torch.device("cpu"))
    assert encoder.preprocessing is not None
    size = images_per_batch(3, SIDE)
    originals = Samples(source, {"image": OriginalImage(3, encoder.preprocessing)})
    prepared = [batch.stack.canvas for batch in originals.batches(range(len(source)), min(256, size), cores())]
    built = iter(range(10**9))

    @torch.inference_mode()
    def alone() -> None:
        for batch in prepared:
            encoder(batch)

    def build() -> None:
        Index.build(photos, folder / f"built-{next(built)}", encoder=opened, progress=False)

    seconds = {name: median(taken) for name, taken in interleaved({"encoder": alone, "build": build}, repeats).items()}
    return {
        "images": len(source),
        "data": "generated photos" if given is None else given.name,
        "side": SIDE,
        "seconds": seconds,
        "ratio": seconds["encoder"] / seconds["build"],
        "mib": resident_mib("VmHWM"),
    }


def _jpeg(random: np.random.Generator, width: int, height: int) -> bytes:
    small = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
    file = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def _write(
    path: Path,
    table: Any,
    rows: int,
    width: int,
    encoder: dict[str, Any],
    data: dict[str, Any],
    random: torch.Generator,
) -> None:
    import pyarrow.parquet as pq

    folder = IndexFolder(path)
    generation = folder.generation(1)
    generation.path.mkdir(parents=True)
    features = np.lib.format.open_memmap(generation.features, "w+", np.float16, (rows, width))
    for start in range(0, rows, 50_000):
        block = features[start : start + 50_000]
        block[:] = functional.normalize(torch.randn(block.shape, generator=random), dim=1).half().numpy()
    features.flush()
    generation.pictures[0].touch()
    np.save(generation.pictures[1], np.zeros(rows + 1, np.int64))
    pq.write_table(table, generation.table, compression="zstd")
    none: dict[str, Any] = {"failed": {"count": 0, "first": []}, "last_update": {}}
    info = {"format": FORMAT, "coulomb": coulomb.__version__, "generation": 1, "images": rows, "features": width}
    info |= {"precision": "float16", "encoder": encoder, "data": data, "thumbnail": 192}
    folder.publish(info | none | {"files": checksums(generation)})


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_index` as text."""
    about = result["machine"]
    lines = [f"{about['processor']}, {about['threads']} threads, median of {result['repeats']}"]
    if "search" in result:
        part = result["search"]
        lines.append(f"search, {part['rows']:,} × {part['width']}, float16, exact (largest error {part['error']:.0e})")
        lines += [f"    {name:16}{1000 * taken:12,.1f} ms" for name, taken in part["seconds"].items()]
    if "update" in result:
        part = result["update"]
        lines.append(f"update of {part['files']:,} files with nothing new{part['seconds']:8.2f} s")
    if "build" in result:
        part = result["build"]
        lines.append(f"build of {part['images']:,} images of {part['data']} with lite0 at {part['side']} pixels")
        lines += [
            f"    {name:16}{part['images'] / part['seconds'][name]:12,.1f} images/s" for name in ("encoder", "build")
        ]
        lines.append(f"    build at {100 * part['ratio']:.0f}% of the encoder's speed; {part['mib']:,.0f} MiB at most")
    return "\n".join(lines)


def main(
    only: Annotated[list[str] | None, typer.Option(help="search, update or build; may be repeated")] = None,
    data: Annotated[str | None, typer.Option(help="images to build an index of; default: generated photos")] = None,
    images: Annotated[int, typer.Option(help="the first images of --data", min=1)] = 1000,
    rows: Annotated[int, typer.Option(help="images of the index that is searched", min=20)] = 1_000_000,
    width: Annotated[int, typer.Option(help="features per image of the index that is searched", min=1)] = 256,
    files: Annotated[int, typer.Option(help="files of the index that is updated", min=1)] = 100_000,
    repeats: Repeats = 3,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Measure an index: opening and searching, updating with nothing new, and building, compared with the encoder alone."""
    sizes = {"images": images, "rows": rows, "width": width, "files": files, "repeats": repeats}
    with progress(quiet=as_json) as doing:
        result = bench_index(only or (), data=data, **sizes, folder=folder, say=doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--only build --data photos/ --images 2000")
