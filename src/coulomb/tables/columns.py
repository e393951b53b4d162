"""Pairs, texts and vectors: data sets opened as a table of several columns."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.ground.text import first_few, visible
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.recognize import Asked, Recognized, recognize
from coulomb.tables.sheet import Sheet
from coulomb.tables.sources import open_sheet
from coulomb.tables.table import Columns, RowNames
from coulomb.tables.texts import Texts

KINDS = ("image", "text", "vector")
NEGATIVE = "negative"
MOST_LABELS = 0.1  # of the rows; fewer different texts than that, of at most LABEL_WORDS words each, look like labels
LABEL_WORDS = 2  # median
LEAST_ROWS = 20


@dataclass(frozen=True)
class Column:
    """A column to train on.

    Attributes:
        name: of the column in the data.
        kind: "image", "text" or "vector"; None: read from the data.
        negative: whether its cells are hard negatives, instead of positives, of the other cells in the row.

    >>> parse_columns("question,answer,wrong:negative")[2].negative
    True
    """

    name: str
    kind: str | None = None
    negative: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise InputError(f"columns: a name is empty{self._written()}; give names such as 'image,caption'")
        if self.kind is not None and self.kind not in KINDS:
            raise InputError(
                f"columns={self.name!r}: unknown kind {self.kind!r}; must be {', '.join(KINDS)} or {NEGATIVE}"
                f"{did_you_mean(self.kind, (*KINDS, NEGATIVE))}"
            )

    def _written(self) -> str:
        return f" before ':{self.kind}'" if self.kind else ""

    def __str__(self) -> str:
        return ":".join([self.name, *([self.kind] if self.kind else []), *([NEGATIVE] if self.negative else [])])

    @classmethod
    def parse(cls, text: str) -> "Column":
        """Parses ``NAME``, ``NAME:KIND``, ``NAME:negative`` or ``NAME:KIND:negative``; raises `InputError`."""
        name, *marks = (part.strip() for part in text.split(":"))
        kinds = [mark for mark in marks if mark != NEGATIVE]
        if len(kinds) > 1 or len(marks) > len(kinds) + 1:
            raise InputError(f"columns={text!r}: must be NAME, NAME:KIND or NAME:KIND:{NEGATIVE}")
        return cls(name, kinds[0] if kinds else None, NEGATIVE in marks)


def parse_columns(columns: "str | Column | Sequence[str | Column]") -> tuple[Column, ...]:
    """Returns the columns that a string or list names, in their order.

    >>> [str(column) for column in parse_columns("image, caption:text, hard:negative")]
    ['image', 'caption:text', 'hard:negative']

    Args:
        columns: names separated by commas, each with ``:image``, ``:text`` or ``:vector`` and ``:negative`` if needed; or a
            list of such names, or of `Column`, whose names may hold commas and colons. Columns of numbers that are joined by
            ``+`` are one column of vectors, see `joined_names`.

    Raises:
        InputError: there are no names, a name is empty or occurs twice, a kind is unknown, or all columns are negatives.
    """
    if isinstance(columns, Column):
        columns = [columns]
    given = columns.split(",") if isinstance(columns, str) else list(columns)
    if not given or given == [""]:
        raise InputError("columns: no names; give for example 'image,caption'")
    if wrong := [each for each in given if not isinstance(each, str | Column)]:
        raise InputError(f"columns: {wrong[0]!r} is a {type(wrong[0]).__name__}, not a name")
    parsed = tuple(each if isinstance(each, Column) else Column.parse(each) for each in given)
    names = [column.name for column in parsed]
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(
            f"columns: {first_few(repeated)} is named twice; name each column once (one column alone is trained on two views)"
        )
    if all(column.negative for column in parsed):
        raise InputError(
            f"columns: {first_few(names)} {'are all' if len(names) > 1 else 'is'} marked ':{NEGATIVE}'; give the column that "
            f"finds its cells, too, and the column of right answers"
        )
    return parsed


def open_columns(
    data: Any,
    columns: "str | Column | Sequence[str | Column]",
    *,
    root: str | Path | None = None,
    labels: Any = None,
) -> Columns:
    """Opens columns of a data set: rows are pairs, triples, or single texts or vectors.

    The kind of a column is given (``caption:text``) or read from its values, see `coulomb.tables.recognize`. A row with a list
    of texts becomes one row per text; its image is shared, not copied. Rows with a missing or empty cell are left out, and
    ``notes`` counts them.

    Args:
        data: a .parquet, .csv, .tsv, .jsonl or .tar file, a pattern or a folder of these · a .txt file, whose lines are the
            column ``text`` · a folder of images with ``metadata.csv``, ``captions.txt`` or ``NAME.txt`` beside ``NAME.jpg``
            (columns ``image`` and ``caption``, or as the table names it) · an address of .parquet or .tar shards ·
            ``user/name`` or ``hub:name`` of the hub, with ``:split`` · a ``datasets.Dataset`` · a dictionary of lists or
            arrays · a list of texts for one column · a list of tuples, one cell per column · a list of dictionaries · a
            table of pandas, polars or pyarrow.
        columns: see `parse_columns`; ``age+height`` joins columns of numbers to vectors, see `joined_names`.
        root: the folder that paths of images are relative to and cannot leave; default the folder of the file.
        labels: None uses a column with a usual name (``label``, ``class``, …) if it holds classes; False or "none" uses
            none; another string names the column; a sequence gives one label per row of the data (−1 = unknown).

    Returns:
        A table. Its cells are `Texts`, images with the methods of `Source`, or an array [N, F].

    Raises:
        InputError: the data cannot be opened, a column does not exist or has no kind, or no complete row is left.
    """
    asked = parse_columns(columns)
    sheet = open_sheet(data, [column.name for column in asked])
    if root is not None:
        sheet.root = Path(root).expanduser()
        if not sheet.root.is_dir():
            raise InputError(f"root={visible(root)}: no such folder; it holds the files that the table names")
    joined = {column.name: joined_names(column.name, sheet, labels) for column in asked}
    found = {column.name: _find(sheet, column, joined[column.name]) for column in asked}
    row, entries, notes = _rows(found, sheet)
    cells = {name: each.take(entries[name]) for name, each in found.items()}
    used = {name for column, parts in joined.items() for name in (parts or [column])}
    of_sheet, class_names, label_column, label_notes = _labels(sheet, labels, used)
    table = Columns(
        cells,
        ids=_names(row, cells),
        labels=None if of_sheet is None else of_sheet[row],
        groups=partial(_other_columns, sheet, {*used, label_column}, row),
        name=sheet.name,
        kinds={name: each.kind for name, each in found.items()},
        kind=sheet.kind,
        class_names=class_names,
        root=sheet.root,
        notes=(*sheet.notes, *notes, *label_notes),
        negatives=tuple(column.name for column in asked if column.negative),
        lost={name: {reason: count for reason, (count, _) in each.lost.items()} for name, each in found.items()},
    )
    table.notes += tuple(
        f"{visible(name)}: pictures on a server are told apart by their place, not by their bytes: copies are different."
        for name, each in cells.items()
        if getattr(each, "remote", False)
    )
    table.notes += tuple(note for name in found for note in look_like_labels(table, name))
    return table


def joined_names(name: str, sheet: Sheet, labels: Any = None) -> list[str]:
    """Returns the columns of numbers that ``name`` joins to one column of vectors; empty if it is the name of one column.

    ``age+height+weight`` joins three columns. A part with ``*`` stands for all columns that match it, in their order, such as
    ``pixel_*``, except for the labels.

    Raises:
        InputError: a part is no column, or matches none.
    """
    if name in sheet.names or not {"+", "*"} & set(name):
        return []
    given = labels if isinstance(labels, str) and labels in sheet.names else None
    label_column = choose_label_column(sheet.names, given, [], visible(sheet.name)) if labels is not False else None
    parts: list[str] = []
    for part in (each.strip() for each in name.split("+")):
        matching = [each for each in sheet.names if fnmatchcase(each, part) and each != label_column]
        if part not in sheet.names and ("*" not in part or not matching):
            raise InputError(
                f"columns={visible(name)!r}: {visible(sheet.name)} has no column {visible(part)!r}; there are "
                f"{first_few(sheet.names, 12)}{did_you_mean(part, sheet.names)}"
            )
        parts += [part] if part in sheet.names else matching
    return list(dict.fromkeys(parts))


def _join(sheet: Sheet, column: Column, parts: list[str]) -> Recognized:
    """Returns columns of numbers, and of vectors, as one column of vectors; rows where one is missing have none."""
    if column.kind not in (None, "vector"):
        raise InputError(
            f"columns={visible(column.name)!r}: joined columns are vectors, not {column.kind}; leave out ':{column.kind}'"
        )
    found = [recognize(sheet.read(name), Asked(name, "vector", sheet.name, sheet.root)) for name in parts]
    values = [np.asarray(each.cells)[np.maximum(each.at, 0)] for each in found]
    complete = np.all([each.at >= 0 for each in found], axis=0)
    lost = {
        f"{visible(name)} is {reason}" if reason.startswith("missing") else f"{visible(name)} has {reason}": examples
        for name, each in zip(parts, found, strict=True)
        for reason, examples in each.lost.items()
    }
    return Recognized(
        "vector", np.concatenate(values, axis=1), np.where(complete, np.arange(len(complete)), -1), lost=lost
    )


def _find(sheet: Sheet, column: Column, parts: list[str]) -> Recognized:
    if parts:
        return _join(sheet, column, parts)
    if column.name not in sheet.names:
        near = difflib.get_close_matches(column.name.lower(), [name.lower() for name in sheet.names], n=1)
        meant = next((name for name in sheet.names if near and name.lower() == near[0]), None)
        hint = f"; did you mean {visible(meant)!r}?" if meant is not None else ""
        there = "there is only" if len(sheet.names) == 1 else "there are"
        raise InputError(
            f"columns={visible(column.name)!r}: {visible(sheet.name)} has no such column; {there} "
            f"{first_few(sheet.names, 12)}{hint}{f'. {sheet.hint}' if sheet.hint else ''}"
        )
    class_names = sheet.class_names.get(column.name)
    return recognize(sheet.read(column.name), Asked(column.name, column.kind, sheet.name, sheet.root, class_names))


Rows = npt.NDArray[np.int64]


def _rows(found: dict[str, Recognized], sheet: Sheet) -> tuple[Rows, dict[str, Rows], list[str]]:
    """Returns the row of the sheet, and the entry of each column, for every complete row of the table; and notes."""
    lists = {name: each.row for name, each in found.items() if each.row is not None}
    notes = []
    row = np.arange(sheet.length)
    if lists:
        row = next(iter(lists.values()))
        if any(not np.array_equal(row, each) for each in lists.values()):
            raise InputError(
                f"{visible(sheet.name)}: columns {first_few(list(lists))} hold lists of different lengths in a row; give "
                "one of them, or lists of the same length, whose texts belong together in their order"
            )
        if len(row) > sheet.length:
            together = " in their order" if len(lists) > 1 else ""
            notes.append(
                f"{first_few(list(lists))} has {len(row)} texts in {sheet.length} rows: one row per text{together}."
            )
    entries = {name: np.arange(len(row)) if each.row is not None else row for name, each in found.items()}
    complete = np.ones(len(row), dtype=bool)
    for name, each in found.items():
        notes += each.notes
        complete &= each.at[entries[name]] >= 0
        for reason, (count, examples) in each.lost.items():
            more = f" and {count - len(examples)} more" if count > len(examples) else ""
            notes.append(f"{visible(name)}: {reason} in {counted(count, 'row')} ({first_few(examples)}{more}).")
    if not complete.any():
        raise InputError(f"{visible(sheet.name)}: no row has a cell in every column. {' '.join(notes)}")
    without = sheet.length - len(np.unique(row))
    if left := int((~complete).sum()) + without:
        total = len(row) + without
        notes.append(f"{counted(left, 'row')} of {total} {'is' if left == 1 else 'are'} left out for this.")
    kept = np.flatnonzero(complete)
    return row[kept], {name: each[kept] for name, each in entries.items()}, notes


def _names(row: Rows, cells: dict[str, Any]) -> RowNames:
    pictures = next((each for each in cells.values() if hasattr(each, "picture")), None)
    return RowNames(row, pictures, None if pictures is None else pictures.at)


def _other_columns(sheet: Sheet, used: set[str | None], row: Rows) -> dict[str, list[Any]]:
    """Returns the columns of numbers, text, booleans or dates that are not used."""
    found = {}
    for name in sheet.names:
        if name not in used and (values := sheet.plain(name)) is not None:
            found[name] = [values[each] for each in row.tolist()]
    return found


def _labels(sheet: Sheet, labels: Any, used: set[str]) -> tuple[Any, list[str] | None, str | None, tuple[str, ...]]:
    """Returns labels of the rows of the sheet, class names, the column that holds them, and notes."""
    if labels is False or (isinstance(labels, str) and labels.lower() == "none"):
        return None, None, None, ()
    if labels is not None and not isinstance(labels, str):
        return *read_labels(labels, sheet.length, "labels="), None, ()
    names = [name for name in sheet.names if labels is not None or name not in used]
    column = choose_label_column(names, labels, [], visible(sheet.name))
    if column is None:
        return None, None, None, ()
    where = f"{visible(sheet.name)}, column {visible(column)}"
    values = sheet.plain(column)
    if values is None:
        if labels is None:
            return None, None, None, ()
        raise InputError(f"{where}: it holds no labels; choose another column, or 'none'")
    try:
        return *read_labels(values, sheet.length, where, sheet.class_names.get(column)), column, ()
    except InputError as error:
        if labels is not None:
            raise
        return None, None, None, (f"Column {visible(column)!r} is not used as labels: {error}.",)


def look_like_labels(table: Columns, name: str) -> list[str]:
    """Returns a sentence if the texts of a column are few and short, as class names and numbers are; else nothing."""
    texts, rows = table.columns[name], len(table)
    if table.kinds[name] != "text" or rows < LEAST_ROWS or not isinstance(texts, Texts):
        return []
    ids = table.cell_ids(name)
    if int(ids.max()) + 1 > MOST_LABELS * rows:  # numbered from 0
        return []
    _, first = np.unique(ids, return_index=True)
    words = np.median([len(texts[row].split()) for row in first.tolist()])
    if words > LABEL_WORDS:
        return []
    return [
        f"{visible(name)} has only {counted(len(first), 'different value')} for {rows:,} rows: these look like labels; use "
        f"--labels {visible(name)}."
    ]
