"""Tar shards in the layout of WebDataset as sheets: images stay in the shards, texts are read once."""

from typing import Any

import numpy as np

from coulomb.ground.text import visible
from coulomb.tables.shards.table import ShardTable
from coulomb.tables.sheets.sheet import Sheet
from coulomb.tables.sources.tar import list_shards
from coulomb.tables.texts import strings

IMAGE = "image"


def open_tar_sheet(addresses: list[str], name: str) -> Sheet:
    """Opens tar shards: the column ``image``, and ``txt``, ``cls`` and the keys of ``json`` members.

    Raises:
        InputError: a shard does not exist or is no tar file, or there are no images.
    """
    source, tables = list_shards(addresses, name)
    columns = [
        column for column in dict.fromkeys(each for table in tables for each in table.columns) if column != IMAGE
    ]
    del tables  # of which all texts would stay in memory

    def read(column: str) -> Any:
        return source if column == IMAGE else _values(list(source.tables()), column)

    return Sheet(name, "tar", len(source), [IMAGE, *columns], read, notes=source.notes)


def _values(tables: list[ShardTable], name: str) -> Any:
    """Returns a column: an Arrow array of its texts, or a list of values of several types."""
    import pyarrow as pa

    values = [table.columns[name].values if name in table.columns else [] for table in tables]
    codes = [table.columns[name].codes if name in table.columns else np.full(len(table), -1) for table in tables]
    if all(isinstance(value, str) for known in values for value in known):
        where = f"the shards, {visible(name)!r}"
        parts = [
            strings([*known, None], where).take(pa.array(np.where(of < 0, len(known), of)))
            for known, of in zip(values, codes, strict=True)
        ]
        return pa.chunked_array(parts, pa.large_string())
    return [([*known, None])[code] for known, of in zip(values, codes, strict=True) for code in of.tolist()]
