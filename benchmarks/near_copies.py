"""Duplicates in a messy folder: which planted near-copies of real photos are found, and which file is kept.

    python -m benchmarks.near_copies rooms.parquet --photos 1500
    python -m benchmarks.near_copies photos1000.parquet --photos 950 --side 128

Writes photos as JPEG files of quality 85, and of 40 photos each: brightened copies, copies saved again at other qualities or
in other formats, copies of half the size, and crops. Prints, with and without the second look at thumbnails, how many were
found, how often the original is kept and the copy is not, the groups that mix different photos, and the seconds.
"""

import io
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer
from PIL import Image, ImageEnhance

import coulomb
from benchmarks.command import command

COPIES = 40  # of each kind
Picture = Image.Image


def crop(image: Picture, share: float) -> Picture:
    """Crops a share of width and height on each side."""
    x, y = round(image.width * share), round(image.height * share)
    return image.crop((x, y, image.width - x, image.height - y))


KINDS: dict[str, tuple[Callable[[Picture], Picture], str, dict[str, Any]]] = {
    "brightened by 30%, quality 95": (lambda im: ImageEnhance.Brightness(im).enhance(1.3), "jpg", {"quality": 95}),
    "saved again, quality 95": (lambda im: im, "jpg", {"quality": 95}),
    "saved again, quality 60": (lambda im: im, "jpg", {"quality": 60}),
    "PNG": (lambda im: im, "png", {}),
    "WebP": (lambda im: im, "webp", {}),
    "half the size": (
        lambda im: im.resize((im.width // 2, im.height // 2), Image.Resampling.LANCZOS),
        "jpg",
        {"quality": 85},
    ),
    "5% cropped on each side": (lambda im: crop(im, 0.05), "jpg", {"quality": 90}),
    "10% cropped on each side": (lambda im: crop(im, 0.1), "jpg", {"quality": 90}),
    "15% cropped on each side": (lambda im: crop(im, 0.15), "jpg", {"quality": 90}),
    "10% cropped on the right": (lambda im: im.crop((0, 0, round(im.width * 0.9), im.height)), "jpg", {"quality": 90}),
    "5% cropped, enlarged again": (
        lambda im: crop(im, 0.05).resize(im.size, Image.Resampling.LANCZOS),
        "jpg",
        {"quality": 90},
    ),
}


def read_photos(path: Path, number: int, side: int | None, seed: int) -> Iterator[Picture]:
    """Yields photos of a Parquet file, in random order, with the shorter side ``side``."""
    rows = pq.read_table(path, columns=["image"]).column("image").to_pylist()
    random.Random(seed).shuffle(rows)
    for row in rows[:number]:
        image = Image.open(io.BytesIO(row["bytes"])).convert("RGB")
        scale = 1 if side is None else side / min(image.size)
        yield image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)


def write_folder(folder: Path, source: Iterator[Picture], seed: int, copies: int) -> dict[str, tuple[str, str]]:
    """Writes the photos and ``copies`` of each kind; returns the kind and the original of each copy."""
    originals = []
    for number, image in enumerate(source):
        originals.append(folder / f"IMG_{number:04d}.jpg")
        image.save(originals[-1], quality=85)
    order = random.Random(seed + 1).sample(originals, len(originals))
    made = {}
    for number, (kind, (change, ending, options)) in enumerate(KINDS.items()):
        for original in order[number * copies : (number + 1) * copies]:
            copy = folder / f"copy-{number:02d}-{original.stem}.{ending}"
            change(Image.open(original).convert("RGB")).save(copy, **options)
            made[copy.name] = kind, original.name
    return made


def judge(answer: dict, made: dict[str, tuple[str, str]]) -> None:
    """Prints what was found and kept, of each kind."""
    place: dict[str, tuple[int, bool]] = {}
    mixed = 0
    for number, group in enumerate([*answer["groups"], *answer["copies"]]):
        place[group["keep"]] = number, True
        place |= {member["id"]: (number, member["keep"]) for member in group["members"]}
        names = [group["keep"], *(member["id"] for member in group["members"])]
        mixed += len({made.get(name, ("", name))[1] for name in names}) > 1
    planted = Counter(kind for kind, _ in made.values())
    found: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for name, (kind, original) in made.items():
        if name in place and original in place and place[name][0] == place[original][0]:
            found[kind] += 1
            kept[kind] += place[original][1] and not place[name][1]
    for kind in KINDS:
        print(f"  {kind:32} found {found[kind]:3} of {planted[kind]}, only the original kept {kept[kind]:3}")
    print(f"  groups that mix photos (the data may hold copies): {mixed}")


def main(
    data: Annotated[Path, typer.Argument(help="Parquet file with a column image of encoded photos")],
    photos: Annotated[int, typer.Option(help="photos that are taken", min=1)] = 1000,
    side: Annotated[int | None, typer.Option(help="shorter side in pixels; default: as they are")] = None,
    seed: Annotated[int, typer.Option(help="of the choice of photos")] = 0,
    copies: Annotated[int, typer.Option(help="copies of each kind", min=1)] = COPIES,
) -> None:
    """Measure the search for duplicates on planted near-copies of photos: copies that are found, files that are kept."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "photos"
        folder.mkdir()
        made = write_folder(folder, read_photos(data, photos, side, seed), seed, copies)
        index = coulomb.Index.build(folder, Path(work) / "index")
        for crops in (False, True):
            wall, cpu = time.perf_counter(), time.process_time()
            answer = index.duplicates(crops=crops)
            seconds = f"{time.perf_counter() - wall:.1f} s ({time.process_time() - cpu:.1f} s of CPU)"
            print(f"{len(index)} images, {'with' if crops else 'without'} the second look: {seconds}")
            judge(answer, made)


if __name__ == "__main__":
    command(main, "rooms.parquet --photos 1500", "photos1000.parquet --photos 950 --side 128")
