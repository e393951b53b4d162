"""Parquet files as sheets: columns of images stay in the files, others are read as Arrow arrays."""

from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.tables.pictures import PictureRows
from coulomb.tables.sheets.sheet import Sheet
from coulomb.tables.sources.hub import ParquetSource, class_labels, image_columns, read_footer


def open_parquet_sheet(shards: list[Path], name: str) -> Sheet:
    """Opens local Parquet files of one data set.

    Raises:
        InputError: a file cannot be read, or the columns of the files differ.
    """
    return describe_sheet(ParquetSource, shards, [read_footer(shard) for shard in shards], name)


def describe_sheet(kind: Any, shards: list[Any], footers: list[Any], name: str) -> Sheet:
    """Returns the sheet of Parquet files with these ``footers``, read by the source ``kind``."""
    import pyarrow as pa

    schema, where = footers[0].schema.to_arrow_schema(), visible(shards[0])
    for shard, footer in zip(shards[1:], footers[1:], strict=True):
        if not footer.schema.to_arrow_schema().equals(schema):
            raise InputError(
                f"{visible(shard)}: its columns differ from the columns of {where}; give shards of one data set"
            )
    names = [each for each in schema.names if each != "__index_level_0__"]
    if repeated := [each for each in dict.fromkeys(names) if names.count(each) > 1]:
        raise InputError(f"{where}: column {visible(repeated[0])!r} occurs more than once; rename one of them")
    pictures, classes = image_columns(footers[0]), class_labels(schema, where)
    reader = kind(
        shards, footers, name=name, column=next(iter([*(each for each in names if each not in pictures), *names]))
    )

    def read(column: str) -> Any:
        if column in pictures:
            source = kind(shards, footers, name=name, column=column)
            missing = _missing(source, footers, column)
            return source if missing is None else PictureRows(source, np.where(missing, -1, np.arange(len(source))))
        tables = [reader.open_shard(number).read(columns=[column]) for number in range(len(shards))]
        return pa.chunked_array([chunk for table in tables for chunk in table.column(column).chunks], tables[0][0].type)

    return Sheet(name, "parquet", len(reader), names, read, root=reader.root, notes=classes[1], class_names=classes[0])


def _missing(source: ParquetSource, footers: list[Any], column: str) -> Any:
    """Returns which rows hold no image, bool [N]; None if none is missing, which the footers say without reading images."""
    nulls = []
    for footer in footers:
        for group in range(footer.num_row_groups):
            parts = [footer.row_group(group).column(number) for number in range(footer.num_columns)]
            part = next(each for each in parts if each.path_in_schema == source.leaf)
            known = part.statistics is not None and part.statistics.has_null_count
            nulls.append(part.statistics.null_count if known else -1)
    if not any(nulls):
        return None
    return np.concatenate([_nulls(source, group) for group in range(len(nulls))])


def _nulls(source: ParquetSource, group: int) -> Any:
    return source.read_group(group).is_null().to_numpy(zero_copy_only=False)
