"""How many files a reader passes: the functions that small real runs call, by file, between two points of each run."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image

import coulomb
from benchmarks.command import Json, command, progress, show

HOUSE = f"{Path(coulomb.__file__).parent}/"
PASSED = ("ground/", "cli/")  # left out, but not what they call
ASIDE = ("metrics/", "evaluation/", "training/record/", "training/watching/")  # figures and records, with all they call
PHOTOS, PAIRS = 90, 300


class ArrivedError(Exception):
    """The walk has reached its end, and the rest of the run is not needed."""


@dataclass
class Trail:
    """The files of a walk, in the order in which they are first entered.

    Attributes:
        last: file and function whose ``when`` ("call" or "return") ends the walk.
        passed: folders that are left out.
        functions: names of the functions called, by file.
        steps: depth, file and name of each function, in the order of their first calls.
        callers: files that called a function of each file.
    """

    last: tuple[str, str] = ("", "")
    when: str = "return"
    passed: tuple[str, ...] = PASSED
    functions: dict[str, set[str]] = field(default_factory=dict)
    callers: dict[str, set[str]] = field(default_factory=dict)
    steps: list[tuple[int, str, str]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Notes a call, as `sys.setprofile` reports it."""
        if event not in ("call", "return") or (name := place(frame.f_code)) is None:
            return
        function = frame.f_code.co_qualname
        if event == "call" and not name.startswith((*self.passed, *ASIDE)):
            above = list(house_frames(frame))
            imported = any(code.co_name == "<module>" for _, code in above) or function == "<module>"
            if not imported and not any(each.startswith(ASIDE) for each, _ in above):
                if function not in self.functions.setdefault(name, set()):
                    self.functions[name].add(function)
                    self.steps.append((len(above), name, function))
                door = next((each for each, _ in above if not each.startswith(self.passed)), name)
                self.callers.setdefault(name, set()).update({door} - {name})
        if event == self.when and (name, function) == self.last:
            sys.setprofile(None)
            raise ArrivedError

    @property
    def doors(self) -> list[str]:
        """Files that are called from several files of other folders."""

        def folder(name: str) -> str:
            return name.rpartition("/")[0]

        return [
            name for name, callers in self.callers.items() if sum(folder(each) != folder(name) for each in callers) > 1
        ]

    @property
    def returns(self) -> dict[str, int]:
        """How often a function of a file is read after the reader has left the file, by file."""
        files = [name for _, name, _ in self.steps]
        entered = Counter(name for name, before in zip(files, [None, *files], strict=False) if name != before)
        return {name: count - 1 for name, count in entered.most_common() if count > 1}

    @property
    def back_and_forth(self) -> list[tuple[str, str]]:
        """Pairs of files that call each other."""
        return sorted(
            (name, each)
            for name, callers in self.callers.items()
            for each in callers
            if name < each and name in self.callers.get(each, ())
        )

    def result(self) -> dict[str, Any]:
        """Returns the counts and the files, ready for JSON."""
        return {
            "files": len(self.functions),
            "functions": sum(map(len, self.functions.values())),
            "returns": self.returns,
            "doors": self.doors,
            "back_and_forth": self.back_and_forth,
            "walk": {
                name: {"functions": sorted(functions), "from": sorted(self.callers[name])}
                for name, functions in self.functions.items()
            },
            "steps": self.steps,
        }


def house_frames(frame: FrameType) -> Iterator[tuple[str, CodeType]]:
    """Yields the files and functions of the house that called this one, the nearest first."""
    above = frame.f_back
    while above is not None:
        if (name := place(above.f_code)) is not None:
            yield name, above.f_code
        above = above.f_back


PLACES: dict[CodeType, str | None] = {}


def place(code: CodeType) -> str | None:
    """Returns the file of a function relative to ``src/coulomb``; None for other code."""
    if code not in PLACES:
        name = code.co_filename
        PLACES[code] = name.removeprefix(HOUSE) if name.startswith(HOUSE) else None
    return PLACES[code]


@contextmanager
def recording(trail: Trail) -> Iterator[None]:
    """Records the calls of the block in ``trail``, until the walk arrives or the block ends."""
    threading.setprofile(trail)
    sys.setprofile(trail)
    try:
        with suppress(ArrivedError):
            yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def draw_photos(folder: Path) -> list[Path]:
    """Writes ``CLASS/NUMBER.jpg``, pictures of noise in three colors."""
    draw, paths = np.random.default_rng(0), []
    for number in range(PHOTOS):
        color = np.eye(3)[number % 3] * 128
        pixels = (draw.integers(0, 128, (64, 80, 3)) + color).astype(np.uint8)
        path = folder / "rgb"[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        paths.append(path)
    return paths


def write_pairs(photos: list[Path], path: Path) -> None:
    """Writes a table of the photos' bytes with captions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chosen = [photos[number % len(photos)] for number in range(PAIRS)]
    images = [{"bytes": photo.read_bytes(), "path": photo.name} for photo in chosen]
    captions = [f"noise in {photo.parent.name}, drawing {number}" for number, photo in enumerate(chosen)]
    pq.write_table(pa.table({"image": images, "caption": captions}), path)


TRAINING = ("training/module.py", "ContrastiveTraining.training_step")
LOSS = ("training/module.py", "ContrastiveTraining.checked_loss")
QUIET: dict[str, Any] = {"epochs": 1, "workers": 0, "evaluate": False, "progress": False}  # workers are not recorded
PHOTO_RUN = QUIET | {"batch_size": 30, "image_size": 32}


def train_photos(folder: Path) -> Trail:
    """`train photos/` → a batch on the device."""
    draw_photos(folder / "photos")
    trail = Trail(TRAINING, "call", (*PASSED, "models/", "kinds/image/views/"))
    with recording(trail):
        coulomb.train(folder / "photos", out=folder / "run", **PHOTO_RUN)
    return trail


def batch_to_step(folder: Path) -> Trail:
    """A batch → its optimizer step, with SimCLR."""
    from unittest.mock import patch

    from coulomb.training.module import ContrastiveTraining

    draw_photos(folder / "photos")
    trail = Trail(("training/module.py", "ContrastiveTraining.optimizer_step"))
    step = ContrastiveTraining.training_step

    def recorded(*arguments: Any) -> Any:
        sys.setprofile(trail)
        return step(*arguments)

    with patch.object(ContrastiveTraining, "training_step", recorded), suppress(ArrivedError):
        coulomb.train(folder / "photos", out=folder / "run", **PHOTO_RUN)
    return trail


def views_to_gradient(folder: Path) -> Trail:
    """Two views → the gradient of NT-Xent, 2 × 2,048 rows."""
    first, second = torch.randn(2, 2048, 128, requires_grad=True).unbind()
    trail = Trail()
    loss = coulomb.losses.NTXentLoss(0.2)
    with recording(trail):
        loss(first, second).backward()
    return trail


def picture_to_answer(folder: Path) -> Trail:
    """A picture → the most similar ones of an index, with lite0."""
    photos = draw_photos(folder / "photos")
    coulomb.Index.build(folder / "photos", folder / "index", image_size=64, progress=False)
    trail = Trail()
    with recording(trail):
        coulomb.Index(folder / "index").search(photos[0])
    return trail


def pairs_to_loss(folder: Path) -> Trail:
    """`train pairs.parquet --columns image,caption` → the first loss, from weights, with cached features."""
    write_pairs(draw_photos(folder / "photos"), folder / "pairs.parquet")
    trail = Trail(LOSS)
    with recording(trail):
        coulomb.train(folder / "pairs.parquet", columns="image,caption", out=folder / "run", image_size=64, **QUIET)
    return trail


WALKS: dict[str, Callable[[Path], Trail]] = {
    "photos": train_photos,
    "step": batch_to_step,
    "loss": views_to_gradient,
    "search": picture_to_answer,
    "pairs": pairs_to_loss,
}


def bench_walks(names: list[str], say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Returns the result of each walk, see `Trail.result`, with its ``title``."""
    torch.set_num_threads(1)
    result = {}
    for name in names:
        walk = WALKS[name]
        say(f"walking: {name}")
        with TemporaryDirectory() as folder:
            title = (walk.__doc__ or "").strip().removesuffix(".")
            result[name] = {"title": title, **walk(Path(folder)).result()}
    return result


def render(result: dict[str, Any], files: bool = False, order: bool = False) -> str:
    """Returns the counts as a table in Markdown; ``files`` also lists the files of each walk, ``order`` its functions."""
    lines = ["| walk | files | functions | returns | several doors | back and forth |", "|---|---|---|---|---|---|"]
    for walk in result.values():
        counts = [walk["files"], walk["functions"], sum(walk["returns"].values())]
        counts += [len(walk["doors"]), len(walk["back_and_forth"])]
        lines.append(f"| {walk['title']} | {' | '.join(map(str, counts))} |")
    for walk in result.values() if files else ():
        lines += ["", walk["title"]]
        for name, step in walk["walk"].items():
            several = "  several doors" if name in walk["doors"] else ""
            again = f"  returns: {walk['returns'][name]}" if name in walk["returns"] else ""
            callers = ", ".join(step["from"]) or "—"
            lines.append(f"  {name}: {', '.join(step['functions'])}  from {callers}{several}{again}")
        lines += [f"  back and forth: {one} ⇄ {other}" for one, other in walk["back_and_forth"]]
    for walk in result.values() if order else ():
        lines += ["", walk["title"]]
        least = min(depth for depth, *_ in walk["steps"])
        lines += [f"{'  ' * (1 + depth - least)}{function}  {name}" for depth, name, function in walk["steps"]]
    return "\n".join(lines)


def main(
    walk: Annotated[list[str] | None, typer.Option(help=f"a walk, may be repeated: {', '.join(WALKS)}")] = None,
    files: Annotated[bool, typer.Option("--files", help="also list the files and functions of each walk")] = False,
    order: Annotated[
        bool, typer.Option("--order", help="also list the functions in the order of their first calls")
    ] = False,
    as_json: Json = False,
) -> None:
    """Count the files that a reader passes on the way of small real runs.

    Counts every file of src/coulomb of which a function is called between two points of a run; imports do not count.
    Checks, figures and records (ground/, metrics/, training/record/, training/watching/) are left out, and on the way to a
    batch also networks and views. Returns: how often a reader who reads each function when it is first called comes back to a
    file that was left. Several doors: files that are called from several files of other folders. Back and forth:
    pairs of files that call each other.
    """
    with progress(as_json) as say:
        result = bench_walks(walk or list(WALKS), say)
    show(result, as_json, lambda result: render(result, files, order))


if __name__ == "__main__":
    command(main, "", "--walk photos --order")
