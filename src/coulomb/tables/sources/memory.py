"""Columns in memory: dictionaries and lists, and tables that are open already."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.tables.sheet import Sheet
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
