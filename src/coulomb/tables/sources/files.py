"""Image files below one folder, given by the folder or by a list of paths."""

import csv
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.outages import unavailable
from coulomb.ground.reading.cells import from_cell
from coulomb.ground.text import first_few, natural_key, portable, visible
from coulomb.kinds.image.band_files import ARRAY_SUFFIXES
from coulomb.kinds.image.decode import HEIC_EXTENSIONS, HEIC_HINT, image_extensions
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.source import EncodedSource, Labels
from coulomb.tables.sources.captions import find_captions

PARTS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"}
TEXT_EXTENSIONS = {".txt", ".csv", ".tsv", ".jsonl", ".json", ".ndjson", ".token"}
PATH_COLUMNS = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path")


class FileSource(EncodedSource):
    """Image files given by POSIX paths relative to the folder ``root``, which no path or link can leave."""

    has_paths = True

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
        self._columns = columns  # reads the other columns of a file list

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns of a file list other than paths and labels."""
        return self._columns()

    def __len__(self) -> int:
        return len(self.paths)

    def item_id(self, index: int) -> str:
        """Returns the path relative to ``root``."""
        return portable(self.paths[index])

    def encoded(self, index: int) -> Path:
        """Returns the path of the file; raises :class:`CorruptImage` if a link leads outside ``root``."""
        path = self.root / self.paths[index]
        if not is_inside(path, self.root):
            raise CorruptImage(self.item_id(index), f"a link leads outside the data folder {self.root}")
        return path

    def stored_bytes(self) -> int:
        """Returns the size of all files; missing files count as 0."""
        return sum(_file_size(f"{self.root}{os.sep}{path}") for path in self.paths)

    def stamps(self) -> list[tuple[int | None, int]]:
        """Returns size and time of the last change of each file; (0, 0) for missing files."""
        return [file_stamp(f"{self.root}{os.sep}{path}") for path in self.paths]


def file_stamp(path: str) -> tuple[int | None, int]:
    """Returns size in bytes and time of the last change in ns; (0, 0) if there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116  as below
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116  a Path object for each of a million files would be slow
    except OSError:
        return 0


def is_inside(path: Path, resolved_root: Path) -> bool:
    """Returns True if ``path`` is inside the folder after all symbolic links are resolved."""
    real = os.path.realpath(path)
    return real.startswith(str(resolved_root).rstrip(os.sep) + os.sep)


@dataclass
class FolderScan:
    """Contents of a folder: relative paths of images and Parquet files, and everything that was skipped."""

    images: list[str] = field(default_factory=list)
    parquet: list[str] = field(default_factory=list)
    hidden: int = 0
    other: int = 0
    texts: list[str] = field(default_factory=list)  # among the others, those that may hold captions
    heic: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Returns one sentence for each kind of entry that was skipped."""
        notes = []
        if self.hidden:
            notes.append(
                f"{counted(self.hidden, 'hidden file or folder was', 'hidden files or folders were')} skipped."
            )
        if self.other:
            have = counted(self.other, "file without an image extension was", "files without an image extension were")
            notes.append(f"{have} skipped.")
        if self.heic:
            have = counted(len(self.heic), "HEIC file was", "HEIC files were")
            notes.append(f"{have} skipped ({first_few(self.heic)}): {HEIC_HINT}.")
        if self.links:
            have = counted(
                len(self.links),
                "link that is circular, or leads to a folder or out of the data folder, was",
                "links that are circular, or lead to folders or out of the data folder, were",
            )
            notes.append(f"{have} left out: {first_few(self.links)}.")
        if self.denied:
            have = counted(len(self.denied), "folder")
            notes.append(f"{have} could not be read (permission denied): {first_few(self.denied)}.")
        return notes


def scan_folder(root: Path) -> FolderScan:
    """Lists the files of a folder tree in natural order. NumPy files are images if there is nothing else.

    Links out of ``root`` are refused, and so are links to folders, which may be circular.
    """
    scan, resolved = FolderScan(), root.resolve()
    arrays: list[str] = []
    shards = False
    waiting = [""]  # paths of folders, each empty or with a slash at its end
    while waiting:
        prefix = waiting.pop()
        for entry in _entries(root, prefix, scan):
            name = prefix + entry.name
            if entry.name.startswith("."):
                scan.hidden += 1
            elif entry.is_symlink() and (_may_be_folder(entry) or not is_inside(Path(entry.path), resolved)):
                scan.links.append(portable(name))
            elif entry.is_dir():
                waiting.append(name + "/")
            else:
                extension = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122  as above
                if extension in image_extensions():
                    scan.images.append(name)
                elif extension == ".parquet":
                    scan.parquet.append(name)
                elif extension in ARRAY_SUFFIXES:
                    arrays.append(name)
                elif extension in HEIC_EXTENSIONS:
                    scan.heic.append(portable(name))
                else:
                    scan.other += 1
                    shards |= extension == ".tar"
                    if extension in TEXT_EXTENSIONS:
                        scan.texts.append(name)
    if scan.images or scan.parquet or shards:
        scan.other += len(arrays)  # features, for example
    else:
        scan.images = arrays
    for names in (scan.images, scan.parquet, scan.heic, scan.links, scan.denied):
        names.sort(key=natural_key)
    return scan


def _entries(root: Path, prefix: str, scan: FolderScan) -> list[os.DirEntry[str]]:
    """Returns what a folder holds; a subfolder without permission is noted and empty."""
    try:
        return list(os.scandir(root / prefix))
    except PermissionError:
        if not prefix:
            raise InputError(f"{visible(root)}: permission denied; this user cannot read the folder") from None
        scan.denied.append(prefix.rstrip("/"))
        return []
    except OSError as error:
        raise unavailable(root / prefix, error) from None


def _may_be_folder(link: os.DirEntry[str]) -> bool:
    """Returns True if a link leads to a folder, in a circle, or where this user may not look."""
    try:
        return link.is_dir()
    except OSError:
        return True


def require_one_part(files: list[Path], name: str) -> None:
    """Raises `InputError` if shards are of several parts of a data set, such as train and test."""
    parts = sorted({part for file in files if (part := re.split(r"[-_.]", file.name.lower())[0]) in PARTS})
    if len(parts) > 1:
        raise InputError(
            f"{visible(name)}: shards of several parts of a data set ({first_few(parts)}); "
            f"give one, for example {visible(files[0].parent)}/{parts[-1]}-*{files[0].suffix}"
        )


def open_folder(root: Path, scan: FolderScan) -> FileSource:
    """Opens the images of a folder, labeled by its subfolders.

    - Without subfolders there are no labels: a flat folder is never one class.
    - With several subfolders, the first folder level is the class, however deep the file lies. Files in the folder itself
      have no label (−1).
    - A single subfolder is not a class either, because one class carries no information.
    - If all subfolders are called train, test, val and the like, they are parts of a data set instead of classes.

    Raises:
        InputError: there are no images, or the subfolders are parts of a data set.
    """
    notes = scan.notes()
    if not scan.images:
        raise InputError(
            f"{visible(root)}: no images in this folder (looked for jpg, png, webp, gif, tif, bmp, npy, … in any case)."
            + " ".join(["", *notes])
        )
    if scan.parquet:
        have = counted(
            len(scan.parquet), "Parquet file next to the images was", "Parquet files next to the images were"
        )
        notes.append(f"{have} skipped.")
    folders = [path.split("/", 1)[0] if "/" in path else None for path in scan.images]
    names = sorted({folder for folder in folders if folder is not None}, key=natural_key)
    if names and None not in folders and {name.lower() for name in names} <= PARTS:
        raise InputError(
            f"{visible(root)}: its folders {first_few(names)} look like parts of a data set, not classes; "
            f"give one of them as the data ({visible(root / names[0])}) and another as the test set"
        )
    captions = find_captions(root, scan.images, [*scan.texts, *scan.parquet])
    if captions is not None and (note := captions.note(len(scan.images))) is not None:
        notes.append(note)
    labels = class_names = None
    kind = "folder"
    if len(names) == 1:
        notes.append(
            f"The only subfolder, {visible(names[0])}, is not used as a class: one class carries no information."
        )
    elif names:
        kind = "class folders"
        class_names = [portable(name) for name in names]
        number = {name: index for index, name in enumerate(names)}
        labels = np.array([-1 if folder is None else number[folder] for folder in folders], dtype=np.int64)
        loose = folders.count(None)
        deep = sum(path.count("/") > 1 for path in scan.images)
        if loose:
            have = counted(
                loose,
                "image lies in the folder itself, next to the class folders: it has",
                "images lie in the folder itself, next to the class folders: they have",
            )
            notes.append(f"{have} no label (−1).")
        if deep:
            have = counted(deep, "image lies deeper than its", "images lie deeper than their")
            notes.append(f"{have} class folder; the first folder level is the class.")
    return FileSource(
        root, scan.images, kind=kind, name=portable(root.resolve().name or str(root)),
        labels=labels, class_names=class_names, notes=tuple(notes),
    )  # fmt: skip


def open_file_list(list_path: Path, *, label_column: str | None = None, root: Path | None = None) -> FileSource:
    """Opens the images named by a CSV, TSV or Parquet file with a column of paths and optionally one of labels.

    Args:
        list_path: the list. Its path column is the first with a name of ``PATH_COLUMNS``.
        label_column: by default the first with a usual name, see `choose_label_column`.
        root: the folder that paths are relative to and cannot leave; default the folder of the list.

    Raises:
        InputError: the list is malformed, a path leads outside ``root``, or none of the first 100 files exists. Other
            missing files are reported when they are read.
    """
    columns = read_columns(list_path)
    where = visible(list_path)
    path_column = next((name for name in PATH_COLUMNS if name in columns), None)
    if path_column is None:
        raise InputError(
            f"{where}: no column of paths among {first_few(list(columns))}; call one of them {PATH_COLUMNS[0]!r} "
            f"(or {', '.join(PATH_COLUMNS[1:])}); for texts, pairs or vectors, name their columns (--columns)"
        )
    label_column = choose_label_column(list(columns), label_column, (), where)
    folder = (list_path.parent if root is None else Path(root)).resolve()
    if not folder.is_dir():
        raise InputError(f"root={visible(folder)}: no such folder; the paths in {where} are relative to it")
    paths = [relative_path(value, row, folder, where) for row, value in enumerate(columns[path_column])]
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
    rest = partial(read_columns, list_path, without=(path_column, label_column))
    return FileSource(
        folder, paths, kind="file list", name=portable(list_path.name), labels=labels, class_names=names, columns=rest
    )


def relative_path(value: object, row: int, root: Path, where: str) -> str:
    """Returns a path of a list as POSIX text relative to the resolved ``root``; links are checked when the file is read.

    Raises:
        InputError: the value in this ``row`` is no path, a URL, or leads outside ``root``.
    """
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InputError(
            f"{where}: row {row + 1} has no usable path ({visible(value)!r}); remove the row or name a file"
        )
    if "://" in value:
        raise InputError(f"{where}: row {row + 1} is a URL ({visible(value)}); download the files and list their paths")
    full = os.path.normpath(root / value)  # an absolute path replaces root and is then checked like any other
    relative = os.path.relpath(full, root)
    if relative in (os.curdir, os.pardir) or relative.startswith(os.pardir + os.sep):
        raise InputError(
            f"{where}: row {row + 1}, {visible(value)}, leads outside the data folder {visible(root)}; "
            "give root= (a folder that holds all the files)"
        )
    return Path(relative).as_posix()


def read_columns(path: Path, without: tuple[str | None, ...] = ()) -> dict[str, list[Any]]:
    """Returns the columns of a CSV, TSV or Parquet file by name; raises InputError if it is malformed."""
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    return {name: values for name, values in columns.items() if name not in without}


def _read_csv(path: Path) -> dict[str, list[Any]]:
    """Returns the columns of text, without the apostrophes that `coulomb.ground.reading.cells` puts before formulas."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            header = [from_cell(name.strip()) for name in next(rows, [])]
            columns: dict[str, list[Any]] = {name: [] for name in header}
            if len(columns) != len(header):
                raise InputError(f"{visible(path)}: a column name appears twice in {first_few(header)}")
            for row in rows:
                if row and len(row) != len(header):
                    raise InputError(
                        f"{visible(path)}: line {rows.line_num} has {len(row)} fields and the header {len(header)}"
                    )
                for name, value in zip(header, row, strict=False):
                    columns[name].append(from_cell(value))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{visible(path)}: not a CSV file in UTF-8 ({visible(error)})") from None
    except PermissionError:
        raise InputError(f"{visible(path)}: permission denied") from None
    return columns


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    names = [name for name in file.schema_arrow.names if name != "__index_level_0__"]
    table = file.read(columns=names)
    return {name: table.column(name).to_pylist() for name in names}
