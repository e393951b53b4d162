"""Objects in memory as sheets: dictionaries, lists, tables of pandas and Arrow."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.tables.sheets.sheet import Sheet
from coulomb.tables.table import Table
from coulomb.tables.texts import Texts


def open_mapping(data: Mapping[Any, Any], name: str = "columns") -> Sheet:
    """Opens columns given by name: lists, NumPy arrays or tensors, all of one length."""
    if not data:
        raise InputError("data={}: no columns; give lists or arrays by name")
    columns = {str(each): _plain(values, str(each)) for each, values in data.items()}
    lengths = {each: len(values) for each, values in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{visible(each)!r} {length}" for each, length in lengths.items())
        raise InputError(f"columns differ in length ({listed}); row i of each column must belong together")
    return Sheet(name, "columns", next(iter(lengths.values())), list(columns), columns.__getitem__)


def _plain(values: Any, name: str) -> Any:
    if hasattr(values, "detach"):  # a tensor of torch
        return values.detach().cpu().numpy()
    if isinstance(values, np.ndarray) or hasattr(values, "picture"):
        return values
    if isinstance(values, str | bytes) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        raise InputError(f"column {visible(name)!r}: a {type(values).__name__} is not a list or an array of cells")
    return values if hasattr(values, "type") and hasattr(values, "null_count") else list(values)


def open_list(data: Sequence[Any], asked: Sequence[str]) -> Sheet:
    """Opens a list of rows: texts for one column, tuples in the order of the columns ``asked``, or dictionaries."""
    kinds = {type(row).__name__ for row in data}
    if not kinds:
        raise InputError("data=[]: the list is empty; give at least one row")
    if all(isinstance(row, Mapping) for row in data):
        names = list(dict.fromkeys(str(name) for row in data for name in row))
        return open_mapping({name: [row.get(name) for row in data] for name in names}, "rows")
    if all(isinstance(row, tuple | list) for row in data):
        widths = {len(row) for row in data}
        if widths != {len(asked)}:
            raise InputError(
                f"data: rows of {first_few(sorted(widths))} cells for {len(asked)} columns ({first_few(asked)}); "
                "give one name per cell, in their order"
            )
        return open_mapping({name: [row[place] for row in data] for place, name in enumerate(asked)}, "rows")
    if any(isinstance(row, Mapping | tuple | list) for row in data):
        raise InputError(f"data: a list of {first_few(sorted(kinds))} mixed; give rows of one kind")
    if len(asked) != 1:
        raise InputError(
            f"data: a list of {first_few(sorted(kinds))} is one column, and columns are {first_few(asked)}; give a "
            "dictionary of lists, or rows as tuples"
        )
    return open_mapping({asked[0]: data}, "rows")


def open_table(table: Table) -> Sheet:
    """Opens a table that is open already, such as a `Source` of images: its columns, and its other columns."""
    columns = {**table.other_columns(), **table.columns}
    names = [*table.columns, *(name for name in columns if name not in table.columns)]

    def read(name: str) -> Any:
        cells = columns[name]
        return cells.array if isinstance(cells, Texts) else cells

    return Sheet(table.name, table.kind, len(table), names, read, notes=table.notes)


def open_arrow(table: Any, name: str = "arrow") -> Sheet:
    """Opens a table of Arrow."""
    _require_distinct(table.column_names, name)
    return Sheet(name, "arrow", table.num_rows, list(table.column_names), table.column)


def open_pandas(frame: Any) -> Sheet:
    """Opens a data frame of pandas; its index is left out."""
    names = [str(name) for name in frame.columns]
    _require_distinct(names, "data frame")

    def read(name: str) -> Any:
        import pyarrow as pa

        column = frame.iloc[:, names.index(name)]
        if column.dtype.kind in "iufb":
            return column.to_numpy()
        try:
            return pa.chunked_array([pa.Array.from_pandas(column)])
        except (pa.ArrowException, TypeError, UnicodeEncodeError):  # images, arrays, or values of several types
            missing = column.isna().tolist()
            return [None if absent is True else value for value, absent in zip(column, missing, strict=True)]

    return Sheet("data frame", "pandas", len(frame), names, read)


def open_polars(frame: Any) -> Sheet:
    """Opens a data frame of polars."""
    objects = [name for name, kind in frame.schema.items() if str(kind) == "Object"]  # images, which Arrow has not
    table = frame.drop(objects).to_arrow()

    def read(name: str) -> Any:
        return frame[name].to_list() if name in objects else table.column(name)

    return Sheet("data frame", "polars", frame.height, list(frame.columns), read)


def _require_distinct(names: Sequence[str], where: str) -> None:
    if repeated := [name for name in dict.fromkeys(names) if list(names).count(name) > 1]:
        raise InputError(f"{visible(where)}: column {first_few(repeated)} occurs more than once; rename one of them")
