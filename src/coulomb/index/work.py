"""Unfinished work: features that a build has computed, kept until the index is complete.

Each process of each attempt writes one part, which nothing changes afterwards: ``features`` (raw rows), ``thumbnails`` (JPEG
files one after the other) and ``photos.jsonl``, one line per image, which is written last. Lines without their features, as
a kill may leave them, are ignored.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.reading import Shape, check_shape, maybe, parse_json, read_lines, text, whole
from coulomb.ground.text import visible
from coulomb.index.folder import sha256, sync
from coulomb.index.table import Photo

ROWS, SECONDS = 1024, 10.0  # a part is written after so many images or seconds
_nanoseconds = Shape("nanoseconds as text", lambda value: isinstance(value, str) and value.lstrip("-").isdecimal())
LINE = {"id": text, "sha256": sha256, "mtime": maybe(_nanoseconds)} | dict.fromkeys(
    ("bytes", "width", "height", "jpeg"), whole
)


class PartWriter:
    """Appends images to a part.

    Args:
        path: folder of the part; it must not exist.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.files = [path / name for name in ("features", "thumbnails", "photos.jsonl")]
        self._pending: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        self._written = time.monotonic()

    def add(self, item_id: str, photo: Photo, features: np.ndarray, thumbnail: bytes) -> None:
        """Adds one image."""
        mtime = None if photo.mtime is None else str(photo.mtime)  # nanoseconds have more digits than JSON's numbers
        line = {"id": item_id, **photo._asdict(), "mtime": mtime, "jpeg": len(thumbnail)}
        for pending, content in zip(
            self._pending, (features.tobytes(), thumbnail, json.dumps(line).encode() + b"\n"), strict=True
        ):
            pending.append(content)
        if len(self._pending[0]) >= ROWS or time.monotonic() - self._written > SECONDS:
            self.write()

    def write(self) -> None:
        """Writes what was added since the last call; the lines of the images last."""
        for path, pending in zip(self.files, self._pending, strict=True):
            with path.open("ab") as file:
                file.write(b"".join(pending))
            sync(path)
            pending.clear()
        self._written = time.monotonic()


class Part:
    """The complete images of a part.

    Args:
        path: folder of the part.
        width: D, features per image.
        precision: type of the features.

    Attributes:
        ids: ids of the images.
        photos: one per image.
        features: [n, D].
    """

    def __init__(self, path: Path, width: int, precision: str) -> None:
        features, self._thumbnails, lines = (path / name for name in ("features", "thumbnails", "photos.jsonl"))
        self.ids: list[str] = []
        self.photos: list[Photo] = []
        ends = [0]
        row = width * np.dtype(precision).itemsize
        complete = min(features.stat().st_size // row, 2**62) if features.exists() else 0
        jpegs = self._thumbnails.stat().st_size if self._thumbnails.exists() else 0
        for number, line in enumerate(read_lines(lines) if lines.exists() else (), 1):
            if not line.endswith(b"\n") or len(self.ids) == complete:
                break  # cut short by a kill
            try:
                entry = check_shape(lines, parse_json(line), LINE, "")
            except ValueError as error:
                reason = str(error).removeprefix(f"{lines}: ").rstrip("; ")
                raise InputError(
                    f"{visible(lines)}: line {number} is damaged ({visible(reason)}); remove {visible(path.parent)} and run "
                    "the same command again"
                ) from None
            if ends[-1] + entry["jpeg"] > jpegs:
                break
            self.ids.append(entry["id"])
            entry["mtime"] = None if entry["mtime"] is None else int(entry["mtime"])
            self.photos.append(Photo(*(entry[name] for name in Photo._fields)))
            ends.append(ends[-1] + entry["jpeg"])
        self._offsets = np.array(ends, np.int64)
        shape = (len(self.ids), width)
        self.features = np.memmap(features, precision, "r", shape=shape) if self.ids else np.empty(shape, precision)
        self._bytes = np.memmap(self._thumbnails, mode="r") if ends[-1] else np.empty(0, np.uint8)

    def thumbnail(self, row: int) -> bytes:
        """Returns the JPEG of one image."""
        return self._bytes[self._offsets[row] : self._offsets[row + 1]].tobytes()


def read_parts(folder: Path, width: int, precision: str) -> list[Part]:
    """Returns the parts in ``folder``, oldest first."""
    return [Part(path, width, precision) for path in sorted(folder.glob("part-*"))]


def next_attempt(folder: Path) -> int:
    """Returns the number of a new attempt to finish the build."""
    numbers = [int(path.name.split("-")[1]) for path in folder.glob("part-*-*")]
    return max(numbers, default=0) + 1


def part_path(folder: Path, attempt: int, rank: int) -> Path:
    """Returns the folder of the part of one process."""
    return folder / f"part-{attempt:06d}-{rank:04d}"


def settings_text(settings: dict[str, Any]) -> str:
    """Returns the settings that all parts of a build share, as text that can be compared."""
    return json.dumps(settings, sort_keys=True, default=os.fspath)
