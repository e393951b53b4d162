"""A column of arrays in Parquet: nested lists of numbers, or Arrow's tensors of a fixed shape."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.sheet import is_plain
from coulomb.tables.source import Source
from coulomb.tables.sources.arrays import ArraySource
from coulomb.tables.sources.frames import FrameSource
from coulomb.tables.sources.parquet import IMAGE_COLUMNS, class_labels, read_footer

MOST_BYTES = 2**31  # of the column, which is read at once


def array_column(footer: Any) -> str | None:
    """Returns the name of the column of images as arrays: of two or three axes; None if there is none, or several.

    One that is called ``image`` or ``img`` takes precedence.
    """
    names = [field.name for field in footer.schema.to_arrow_schema() if _axes(field.type) in (2, 3)]
    preferred = [name for name in IMAGE_COLUMNS if name in names] or names
    return preferred[0] if len(preferred) == 1 or (preferred and preferred[0] in IMAGE_COLUMNS) else None


def _axes(kind: Any) -> int:
    """Returns the number of axes of the arrays of an Arrow type, 0 if they do not hold numbers."""
    import pyarrow as pa

    if isinstance(kind, pa.FixedShapeTensorType):
        return len(kind.shape)
    kind = getattr(kind, "storage_type", kind)  # such as Array3D of datasets
    axes = 0
    while _is_list(kind):
        kind, axes = kind.value_type, axes + 1
    return axes if pa.types.is_integer(kind) or pa.types.is_floating(kind) else 0


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def open_array_column(shards: list[Path], column: str, *, name: str, label_column: str | None = None) -> Source:
    """Opens the arrays of a column, [H, W], [H, W, C] or [C, H, W] each, of one or several Parquet files of one data set.

    Raises:
        InputError: the column takes more than 2 GiB, has rows without an array, or the labels do not fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = f"{visible(shards[0])}, column {visible(column)}"
    footers = [read_footer(shard) for shard in shards]
    schema = footers[0].schema.to_arrow_schema()
    if any(not footer.schema.to_arrow_schema().equals(schema) for footer in footers):
        raise InputError(f"{visible(name)}: the columns of its shards differ; give shards of one data set")
    size = sum(_column_bytes(footer, column) for footer in footers)
    if size > MOST_BYTES:
        raise InputError(
            f"{where}: {size / 2**30:.3g} GiB, which are read at once (at most {MOST_BYTES >> 30}); save them as bytes of "
            "TIFF or .npy files instead, which are read one by one"
        )
    tables = [pq.read_table(shard, columns=[column]) for shard in shards]
    values = pa.concat_tables(tables).column(column).combine_chunks()
    if not len(values):
        raise InputError(f"{where}: the table has no rows")
    if values.null_count:
        raise InputError(f"{where}: {values.null_count} of {len(values)} rows have no array; remove them")
    classes, notes = class_labels(schema, visible(name))
    others = [field.name for field in schema if field.name != column and is_plain(field.type)]
    label_column = choose_label_column(schema.names, label_column, list(classes), visible(name))
    read = partial(_read_columns, shards)
    rest = [each for each in others if each != label_column]
    source = _source(values, where, name, partial(read, rest))
    source.kind, source.notes = "parquet", notes
    if label_column is not None:
        labels = read([label_column])[label_column]
        at = f"{visible(name)}, column {visible(label_column)}"
        source.labels, source.class_names = read_labels(labels, len(source), at, classes.get(label_column))
    return source


def _column_bytes(footer: Any, column: str) -> int:
    """Returns the size of a column in bytes, uncompressed."""
    size = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = (group.column(place) for place in range(group.num_columns))
        size += sum(
            chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] == column
        )
    return size


def _read_columns(shards: list[Path], names: list[str]) -> dict[str, list[Any]]:
    import pyarrow.parquet as pq

    if not names:
        return {}
    tables = [pq.read_table(shard, columns=names) for shard in shards]
    return {name: [value for table in tables for value in table.column(name).to_pylist()] for name in names}


def _source(values: Any, where: str, name: str, columns: Any) -> Source:
    """Returns the arrays as one, or if their shapes differ, one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values.type, pa.FixedShapeTensorType):
        return ArraySource(values.to_numpy_ndarray(), name=name, columns=columns)
    storage = getattr(values, "storage", values)
    shape, flat, equal = [len(storage)], storage, True
    while _is_list(flat.type):
        if flat.null_count:
            raise InputError(f"{where}: {flat.null_count} lists are missing; every array must be complete")
        lengths = pc.list_value_length(flat)
        low, high = pc.min(lengths).as_py(), pc.max(lengths).as_py()
        equal &= low == high
        shape.append(high)
        flat = flat.flatten()
    if equal:
        # A missing number becomes NaN.
        return ArraySource(flat.to_numpy(zero_copy_only=False).reshape(shape), name=name, columns=columns)
    dtype = np.dtype(flat.type.to_pandas_dtype())
    images = []
    for row in storage:
        try:
            images.append(np.array(row.as_py(), dtype=dtype))
        except ValueError:
            raise InputError(f"{where}: row {len(images) + 1} is not an array: its lists differ in length") from None
    source = FrameSource(images, None, None, columns(), column=name)
    source.name = name
    return source
