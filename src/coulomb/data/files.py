"""Image files under one folder, out of which no path can lead."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coulomb.data.encoded import EncodedSource
from coulomb.data.names import portable
from coulomb.data.source import CorruptImage, Labels


class FileSource(EncodedSource):
    """Files given by POSIX paths relative to ``root``; a folder, a tree and a file list all end up here."""

    def __init__(
        self,
        root: Path,
        paths: list[str],
        *,
        kind: str,
        name: str,
        labels: Labels | None = None,
        class_names: list[str] | None = None,
        notes: tuple[str, ...] = (),
        columns: Callable[[], dict[str, list[Any]]] = dict,
    ) -> None:
        self.root: Path = root.resolve()
        self.paths = paths
        self.kind = kind
        self.name = name
        self.labels = labels
        self.class_names = class_names
        self.notes = notes
        self._columns = columns  # reads the rest of the table when it is asked for

    def other_columns(self) -> dict[str, list[Any]]:
        """The columns of the list other than paths and labels."""
        return self._columns()

    def __len__(self) -> int:
        return len(self.paths)

    def item_id(self, index: int) -> str:
        """The path relative to ``root``."""
        return portable(self.paths[index])

    def encoded(self, index: int) -> Path:
        """The file, once links are followed; :class:`CorruptImage` where that leads outside ``root``."""
        path = self.root / self.paths[index]
        if not is_inside(path, self.root):
            raise CorruptImage(self.item_id(index), f"a link leads outside the data folder {self.root}")
        return path

    def stored_bytes(self) -> int:
        """Size of all files; missing ones count as 0."""
        return sum(_size(f"{self.root}{os.sep}{path}") for path in self.paths)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116  a million files: no Path each
    except OSError:
        return 0


def is_inside(path: Path, resolved_root: Path) -> bool:
    """Whether ``path`` is in the folder once every symbolic link is followed."""
    real = os.path.realpath(path)
    return real.startswith(str(resolved_root).rstrip(os.sep) + os.sep)
