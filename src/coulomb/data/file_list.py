"""A file list: CSV or Parquet with a column of paths and, perhaps, one of labels."""

import csv
import os
from functools import partial
from pathlib import Path
from typing import Any

from coulomb.data.files import FileSource
from coulomb.data.labels import read_labels
from coulomb.data.names import portable, some, visible
from coulomb.errors import InputError

PATH_COLUMNS = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path")
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target")


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
