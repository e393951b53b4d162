"""Unfinished work: features that a build has computed, kept until the index is complete.

Each process of each attempt writes one part, which nothing changes afterwards: ``features`` (raw rows), ``thumbnails`` (of
images, JPEG files one after the other) and ``photos.jsonl`` or ``texts.jsonl``, one line per image or text, which is written
last. Lines without their features, as a kill may leave them, are ignored.
"""

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.reading import check_shape, parse_json, read_lines, text, whole
from coulomb.ground.text import visible
from coulomb.index.folder import sync
from coulomb.index.kinds import IMAGES, IndexKind

ROWS, SECONDS = 1024, 10.0  # a part is written after so many images or seconds
ZERO = "its features are zero or not finite"
LINE = {"id": text, "jpeg": whole}  # and the facts of the kind; jpeg is the size of the thumbnail


@dataclass
class Outcome:
    """What became of some images or texts: those whose content equals a stored one, and the reasons for unreadable ones.

    All others were embedded.
    """

    known: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, other: "Outcome") -> None:
        """Adds the images or texts of ``other``."""
        self.known |= other.known
        self.failed |= other.failed


class PartWriter:
    """Appends images to a part.

    Args:
        path: folder of the part; it must not exist.
        lines: name of the file with a line per image or text.
    """

    def __init__(self, path: Path, lines: str = IMAGES.lines) -> None:
        path.mkdir(parents=True)
        self.files = [path / name for name in ("features", "thumbnails", lines)]
        self._pending: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        self._written = time.monotonic()

    def add(self, item_id: str, facts: Any, features: np.ndarray, thumbnail: bytes = b"") -> None:
        """Adds one image or text."""
        line = {"id": item_id, **facts._asdict(), "jpeg": len(thumbnail)}
        if line.get("mtime") is not None:
            line["mtime"] = str(line["mtime"])  # nanoseconds have more digits than JSON's numbers
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
        kind: of the index.

    Attributes:
        ids: ids of the images or texts.
        photos: what is known about each.
        features: [n, D].
    """

    def __init__(self, path: Path, width: int, precision: str, kind: IndexKind = IMAGES) -> None:
        features, self._thumbnails, lines = (path / name for name in ("features", "thumbnails", kind.lines))
        self.ids: list[str] = []
        self.photos: list[Any] = []
        shapes = LINE | kind.line
        ends = [0]
        row = width * np.dtype(precision).itemsize
        complete = min(features.stat().st_size // row, 2**62) if features.exists() else 0
        jpegs = self._thumbnails.stat().st_size if self._thumbnails.exists() else 0
        for number, line in enumerate(read_lines(lines) if lines.exists() else (), 1):
            if not line.endswith(b"\n") or len(self.ids) == complete:
                break  # cut short by a kill
            try:
                entry = check_shape(lines, parse_json(line), shapes, "")
            except ValueError as error:
                reason = str(error).removeprefix(f"{lines}: ").rstrip("; ")
                raise InputError(
                    f"{visible(lines)}: line {number} is damaged ({visible(reason)}); remove {visible(path.parent)} and run "
                    "the same command again"
                ) from None
            if ends[-1] + entry["jpeg"] > jpegs:
                break
            self.ids.append(entry["id"])
            if entry.get("mtime") is not None:
                entry["mtime"] = int(entry["mtime"])
            self.photos.append(kind.facts(*(entry[name] for name in kind.facts._fields)))
            ends.append(ends[-1] + entry["jpeg"])
        self._offsets = np.array(ends, np.int64)
        shape = (len(self.ids), width)
        self.features = np.memmap(features, precision, "r", shape=shape) if self.ids else np.empty(shape, precision)
        self._bytes = np.memmap(self._thumbnails, mode="r") if ends[-1] else np.empty(0, np.uint8)

    def thumbnail(self, row: int) -> bytes:
        """Returns the JPEG of one image."""
        return self._bytes[self._offsets[row] : self._offsets[row + 1]].tobytes()


def read_parts(folder: Path, width: int, precision: str, kind: IndexKind = IMAGES) -> list[Part]:
    """Returns the parts in ``folder``, oldest first."""
    return [Part(path, width, precision, kind) for path in sorted(folder.glob("part-*"))]


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
