"""The folder of a run: paths, lock, formats of its files, atomic writing."""

import contextlib
import logging
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading import (
    MIB,
    RESTORE,
    Shape,
    check_shape,
    list_of,
    maybe,
    number,
    read_object,
    table,
    text,
    whole,
)
from coulomb.ground.text import safe_name
from coulomb.kinds.image.bands import Measured
from coulomb.kinds.image.canvas import STORED_CANVAS, Canvas

log = logging.getLogger("coulomb")


class RunFolder:
    """Paths inside a run folder.

    Args:
        path: the folder; need not exist yet.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._created: list[Path] = []
        self.config = self.path / "config.yaml"
        self.data = self.path / "data.json"
        self.split = self.path / "split.json"
        self.loggers = self.path / "loggers.json"
        self.stopped = self.path / "stopped.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.jsonl"
        self.evaluation = self.path / "evaluation.json"
        self.doctor = self.path / "doctor.json"
        self.transfer = self.path / "transfer"
        self.samples = self.path / "samples.npz"
        self.views = self.path / "views.png"
        self.shown_views = self.path / "views.json"
        self.log = self.path / "train.log"
        self.lock = self.path / "lock"
        self.report = self.path / "report.html"
        self.initial = self.path / "checkpoints" / "initial"
        self.checkpoint = self.path / "checkpoints" / "last.ckpt"
        self.features = self.path / "features.f32"
        self.job = self.path / "torchrun.json"
        self.towers = self.path / "towers.json"

    def tower(self, name: str) -> Path:
        """Returns the folder of the encoder of a tower, in a run on columns."""
        return self.path / "towers" / safe_name(name)

    def start(self, name: str) -> Path:
        """Returns the folder of the encoder with which a tower began."""
        return self.initial / safe_name(name)

    def refuse_existing(self) -> None:
        """Raises `InputError` if the folder exists and is not empty."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            remedy = "continue it with --resume" if self.config.is_file() else "remove it"
            raise InputError(f"out={str(self.path)!r}: already exists; choose another folder, or {remedy}")

    def create(self) -> None:
        """Creates the folder; raises `InputError` if that is not possible."""
        try:
            self.refuse_existing()
            self._created = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"out={str(self.path)!r}: cannot be created ({error.strerror})") from None

    def discard(self) -> None:
        """Undoes `create`: removes the folder, or empties it if it existed before."""
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        for folder in self._created:
            with contextlib.suppress(OSError):  # no longer empty
                folder.rmdir()

    def require(self) -> None:
        """Raises `InputError` if the folder is not a run, or contains a link that leads out of it."""
        if not self.config.is_file():
            raise InputError(f"{str(self.path)!r}: not a run folder (no config.yaml in it)")
        self.refuse_links()

    def refuse_links(self) -> None:
        """Raises `InputError` if a symbolic link in the folder, at any depth, leads out of it, because writing to it would
        change files elsewhere. The folder itself may be a link.
        """
        inside = self.path.resolve()
        for folder, folders, files in os.walk(inside):
            for path in (Path(folder, name) for name in folders + files):
                if path.is_symlink() and not _target(path).is_relative_to(inside):
                    raise InputError(
                        f"{path}: is a symbolic link that leads out of the run folder, and writing to it would change files "
                        f"elsewhere ({_target(path)}); replace it with a copy, or remove it"
                    )


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return link.parent / link.readlink()


def command_for(command: str, path: Path) -> str:
    """Returns the shell command that applies ``command`` to the run in ``path``."""
    return f"coulomb {command} {shlex.quote(str(path))}"


def free_folder(name: str, method: str) -> Path:
    """Returns ``runs/NAME-METHOD``, or the first of ``…-2``, ``…-3``, … that does not exist yet."""
    safe = safe_name(name)
    path, number = Path("runs") / f"{safe}-{method}", 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{safe}-{method}-{number}"
    return path


MOST_SPLIT = 1024 * MIB  # ten million images
EVALUATE = "write it again with: coulomb evaluate RUN"

_row = Shape(
    "the numbers of a class",
    lambda row: isinstance(row, dict) and number.fits(row.get("train")) and maybe(number).fits(row.get("knn")),
)
_contestant = Shape(
    "an object with numbers, and per_class a list of objects",
    lambda value: isinstance(value, dict) and maybe(list_of(_row)).fits(value.get("per_class")),
)
DATA = {
    "train": maybe(whole),
    "class_counts": maybe(list_of(whole)),
    "split": maybe(text),
    "canvas": maybe(STORED_CANVAS),
    "band_notes": maybe(list_of(text)),
}
SPLIT = {"train": list_of(text), "test": list_of(text), "fingerprints": table}
STOPPED = {"step": whole, "epoch": whole, "by": text, "reason": maybe(text)}
EVALUATION = {
    "protocol": table,
    "comparison": maybe(list_of(table)),
    "verdict": maybe(table),
    "drift": maybe(table),
    "samples": maybe(table),
    "column": maybe(text),
    "kind": maybe(text),
}
LISTS = ("columns", "maps")  # entries that may be lists; the others are figures of contestants


def read_data(folder: RunFolder) -> dict[str, Any]:
    """Reads ``data.json``; empty if the run has not written it yet. Raises `InputError` if it is malformed."""
    return read_object(folder.data, DATA) if folder.data.exists() else {}


def stored_bands(folder: RunFolder) -> Measured | None:
    """Returns the bands of a run, with the ranges that were measured when it began; None for photos."""
    data = read_data(folder)
    bands = None if data.get("canvas") is None else Canvas.from_dict(data["canvas"]).bands
    return None if bands is None else Measured(bands, tuple(data.get("band_notes") or ()))


def read_split(folder: RunFolder) -> dict[str, Any]:
    """Reads ``split.json``. Raises `InputError` if it is missing or malformed."""
    return read_object(folder.split, SPLIT, most=MOST_SPLIT, remedy=f"{RESTORE}, or start a new run")


def read_stopped(folder: RunFolder) -> dict[str, Any] | None:
    """Reads ``stopped.json``, None if no callback ended the run. Raises `InputError` if it is malformed."""
    return read_object(folder.stopped, STOPPED) if folder.stopped.exists() else None


def read_evaluation(folder: RunFolder) -> dict[str, Any]:
    """Reads ``evaluation.json``. Raises `InputError` if it is missing or malformed."""
    evaluation = read_object(folder.evaluation, EVALUATION, remedy=EVALUATE)
    contestants = {name: maybe(_contestant) for name in evaluation if name not in (*EVALUATION, *LISTS)}
    return check_shape(folder.evaluation, evaluation, contestants, EVALUATE)
