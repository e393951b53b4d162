"""Exports an index as CSV or NumPy arrays, which any program reads."""

from pathlib import Path
from typing import Any

import numpy as np

from coulomb.export.extras import new_path
from coulomb.export.vectors import ROWS, Vectors, require_rows
from coulomb.ground.errors import InputError
from coulomb.ground.files import written
from coulomb.ground.reading.cells import to_cell


def to_csv(index: Vectors, out: str | Path) -> dict[str, Any]:
    """Writes an index as CSV: ``id``, ``path`` and ``label`` (empty if unknown), then one column per feature, f0, f1, …

    Features are written with as many digits as float32 needs. Text that a spreadsheet would run as a formula begins with an
    apostrophe, see `coulomb.ground.reading.cells`. Memory does not grow with the index.

    Raises:
        InputError: ``out`` exists or cannot be written, or the index is empty.
    """
    import pyarrow as pa
    from pyarrow.csv import CSVWriter

    require_rows(index)
    names = [f"f{column}" for column in range(index.features.shape[1])]
    shown = index.table.column_names[:3]  # id, path or text, label
    text = [(name, pa.string()) for name in shown]
    schema = pa.schema(text + [(name, pa.float32()) for name in names])
    about = index.table.select(shown)
    with written(new_path(out)) as file, CSVWriter(file, schema) as writer:
        for start in range(0, len(index), ROWS):
            rows = index.rows(start, min(start + ROWS, len(index))).numpy()
            text_columns = about.slice(start, len(rows)).columns
            columns = [pa.array([to_cell(each) for each in column.to_pylist()], pa.string()) for column in text_columns]
            columns += [pa.array(np.ascontiguousarray(column)) for column in rows.T]
            writer.write_table(pa.table(columns, schema=schema))
    return {"out": str(out), "images": len(index), "features": len(names)}


def to_npz(index: Vectors, out: str | Path) -> dict[str, Any]:
    """Writes an index as NumPy arrays for ``numpy.load``, without pickles.

    ``features`` [N, D] as in the index, float16 or float32; ``ids`` [N] and ``labels`` [N] are text, "" where unknown.

    Raises:
        InputError: ``out`` exists, does not end in .npz or cannot be written, or the index is empty.
    """
    require_rows(index)
    path = new_path(out)
    if path.suffix != ".npz":
        raise InputError(f"out={str(out)!r}: must end in .npz, by which numpy.load knows it")
    labels = np.array([label or "" for label in index.labels], dtype=np.str_)
    with written(path) as file:
        np.savez(file, features=index.features, ids=np.array(index.ids, dtype=np.str_), labels=labels)
    return {"out": str(out), "images": len(index), "features": index.features.shape[1]}
