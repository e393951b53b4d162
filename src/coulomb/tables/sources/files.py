"""Image files below one folder, and lists of their paths."""

import csv
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading.cells import from_cell
from coulomb.ground.text import first_few, portable, visible
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.source import EncodedSource, Labels

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
