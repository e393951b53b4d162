"""Image files below one folder: a folder of images, or a list of paths."""

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.data.decode import HEIC_EXTENSIONS, HEIC_HINT, EncodedSource, image_extensions
from coulomb.data.labels import LABEL_COLUMNS, read_labels
from coulomb.data.names import natural_key, portable, some, visible
from coulomb.data.source import CorruptImage, Labels
from coulomb.errors import InputError


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


PARTS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"}


@dataclass
class Scan:
    """What lies in a folder: images and Parquet files by relative path, and a count of everything passed over."""

    images: list[str] = field(default_factory=list)
    parquet: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0
    heic: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind of thing that was passed over."""
        said = []
        if self.hidden:
            said.append(f"{self.hidden} hidden files or folders were passed over.")
        if self.other:
            said.append(f"{self.other} files without an image extension were passed over.")
        if self.heic:
            said.append(f"{len(self.heic)} HEIC files were passed over ({some(self.heic)}): {HEIC_HINT}.")
        if self.links:
            said.append(
                f"{len(self.links)} links to folders or out of the data folder were refused: {some(self.links)}."
            )
        if self.denied:
            said.append(f"{len(self.denied)} folders could not be read (permission denied): {some(self.denied)}.")
        return tuple(said)


def scan_folder(root: Path) -> Scan:
    """Walk ``root`` in natural order. Links that leave it, and links to folders (they could run in circles), are refused."""
    found = Scan()
    resolved = root.resolve()
    try:
        os.scandir(root).close()
    except PermissionError:
        raise InputError(f"{visible(root)}: permission denied; the folder cannot be read by this user") from None
    _walk(root, "", resolved, found)
    found.images.sort(key=natural_key)
    found.parquet.sort(key=natural_key)
    return found


def _walk(folder: Path, prefix: str, root: Path, found: Scan) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: natural_key(entry.name))
    except PermissionError:
        found.denied.append(prefix.rstrip("/"))
        return
    for entry in entries:
        name = prefix + entry.name
        if entry.name.startswith("."):
            found.hidden += 1
        elif entry.is_symlink() and (entry.is_dir() or not is_inside(Path(entry.path), root)):
            found.links.append(portable(name))
        elif entry.is_dir():
            _walk(Path(entry.path), name + "/", root, found)
        else:
            extension = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122  a million files: no Path each
            if extension in image_extensions():
                found.images.append(name)
            elif extension == ".parquet":
                found.parquet.append(name)
            elif extension in HEIC_EXTENSIONS:
                found.heic.append(portable(name))
            else:
                found.other += 1


def open_folder(root: Path, scan: Scan | None = None) -> FileSource:
    """The images of a folder, with labels by the rules above. Raises :class:`InputError` where there are none."""
    found = scan_folder(root) if scan is None else scan
    notes = list(found.notes())
    if not found.images:
        passed = " " + " ".join(notes) if notes else ""
        raise InputError(f"{visible(root)}: no images in this folder (looked for {_extensions()}).{passed}")
    if found.parquet:
        notes.append(f"{len(found.parquet)} Parquet files beside the images were passed over.")
    tops = [path.split("/", 1)[0] if "/" in path else None for path in found.images]
    names = sorted({top for top in tops if top is not None}, key=natural_key)
    if names and None not in tops and {name.lower() for name in names} <= PARTS:
        raise InputError(
            f"{visible(root)}: its folders {some(names)} look like parts of a data set, not classes; "
            f"give one of them as the data ({visible(root / names[0])}) and another as the test set"
        )
    labels = class_names = None
    kind = "folder"
    if len(names) == 1:
        notes.append(f"The only subfolder, {visible(names[0])}, was not taken for a class: one class says nothing.")
    elif names:
        kind = "class folders"
        class_names = [portable(name) for name in names]
        number = {name: index for index, name in enumerate(names)}
        labels = np.array([-1 if top is None else number[top] for top in tops], dtype=np.int64)
        loose = tops.count(None)
        deep = sum(path.count("/") > 1 for path in found.images)
        if loose:
            notes.append(f"{loose} images lie in the folder itself, beside the class folders: they have no label (−1).")
        if deep:
            notes.append(f"{deep} images lie deeper than their class folder; the first folder level is the class.")
    return FileSource(
        root, found.images, kind=kind, name=portable(root.resolve().name or str(root)),
        labels=labels, class_names=class_names, notes=tuple(notes),
    )  # fmt: skip


def _extensions() -> str:
    return "jpg, png, webp, gif, tif, bmp, … in any case"


PATH_COLUMNS = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path")


def open_file_list(list_path: Path, *, label_column: str | None = None, root: Path | None = None) -> FileSource:
    """Images named by a list. Paths are relative to ``root`` (default: the list's folder) and cannot lead out of it.

    Columns: the first of :data:`PATH_COLUMNS` and of :data:`LABEL_COLUMNS` that is there, or ``label_column``; for labels
    see :func:`~coulomb.data.labels.read_labels`. Raises :class:`InputError` for a path that leads outside and for a list
    whose first hundred files are all missing; single missing files are found, and named, when they are read.
    """
    columns = _read_columns(list_path)
    where = visible(list_path)
    path_column = next((name for name in PATH_COLUMNS if name in columns), None)
    if path_column is None:
        raise InputError(
            f"{where}: no column of paths among {some(list(columns))}; name one of them {PATH_COLUMNS[0]!r} "
            f"(also understood: {', '.join(PATH_COLUMNS[1:])})"
        )
    if label_column is not None and label_column not in columns:
        raise InputError(f"{where}: no label column {visible(label_column)!r}; there are {some(list(columns))}")
    if label_column is None:
        label_column = next((name for name in LABEL_COLUMNS if name in columns), None)
    folder = (list_path.parent if root is None else Path(root)).resolve()
    if not folder.is_dir():
        raise InputError(f"root={visible(folder)}: no such folder; it is what the paths in {where} are relative to")
    paths = [_inside(value, row, folder, where) for row, value in enumerate(columns[path_column])]
    if not paths:
        raise InputError(f"{where}: the list is empty; it needs at least one row below its header")
    if not any((folder / path).exists() for path in paths[:100]):
        raise InputError(
            f"{where}: none of the first {min(100, len(paths))} files exists, e.g. {visible(folder / paths[0])}; "
            "paths are relative to the list's folder unless root= is given"
        )
    labels, names = None, None
    if label_column is not None:
        labels, names = read_labels(columns[label_column], len(paths), f"{where}, column {visible(label_column)}")
    rest = partial(_read_columns, list_path, without=(path_column, label_column))
    return FileSource(
        folder, paths, kind="file list", name=portable(list_path.name), labels=labels, class_names=names, columns=rest
    )


def _inside(value: object, row: int, root: Path, where: str) -> str:
    """One path as POSIX text relative to ``root``; links are checked when the file is read."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InputError(
            f"{where}: row {row + 1} has no usable path ({visible(value)!r}); remove the row or name a file"
        )
    if "://" in value:
        raise InputError(
            f"{where}: row {row + 1} is an address ({visible(value)}); download the files and list their paths"
        )
    full = os.path.normpath(root / value)  # an absolute value replaces root here, and is then checked like any other
    relative = os.path.relpath(full, root)
    if relative in (os.curdir, os.pardir) or relative.startswith(os.pardir + os.sep):
        raise InputError(
            f"{where}: row {row + 1}, {visible(value)}, leads outside the data folder {visible(root)}; "
            "give root= (a folder that holds all the files)"
        )
    return Path(relative).as_posix()


def _read_columns(path: Path, without: tuple[str | None, ...] = ()) -> dict[str, list[Any]]:
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    return {name: values for name, values in columns.items() if name not in without}


def _read_csv(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            header = [name.strip() for name in next(rows, [])]
            columns: dict[str, list[Any]] = {name: [] for name in header}
            if len(columns) != len(header):
                raise InputError(f"{visible(path)}: a column name appears twice in {some(header)}")
            for row in rows:
                if row and len(row) != len(header):
                    raise InputError(
                        f"{visible(path)}: line {rows.line_num} has {len(row)} fields and the header {len(header)}"
                    )
                for name, value in zip(header, row, strict=False):
                    columns[name].append(value)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{visible(path)}: not a CSV file in UTF-8 ({visible(error)})") from None
    except PermissionError:
        raise InputError(f"{visible(path)}: permission denied") from None
    return columns


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    names = [name for name in pq.read_schema(path).names if name not in {"__index_level_0__"}]
    table = pq.ParquetFile(path).read(columns=names)
    return {name: table.column(name).to_pylist() for name in names}
