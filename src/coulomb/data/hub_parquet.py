"""Parquet in the hub's image layout: a column of struct<bytes, path>, and class names in the schema's metadata."""

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.data.encoded import EncodedSource
from coulomb.data.file_list import LABEL_COLUMNS
from coulomb.data.labels import read_labels
from coulomb.data.names import portable, some, visible
from coulomb.data.source import CorruptImage, Labels
from coulomb.errors import InputError
from coulomb.reading import parse_json

# Encoded row groups kept by one process; a data set below this is read from disk once.
BUFFER_BYTES = 256 * 2**20


class ParquetSource(EncodedSource):
    """Images inside Parquet shards. Row groups are read when first needed and a bounded number is kept.

    Shuffled reading of a set far larger than the buffer reads a whole row group for one picture: the images' cache
    (:meth:`coulomb.data.Images.load`) or small row groups (a hundred rows, as the hub writes them) avoid that.
    """

    kind = "parquet"

    def __init__(
        self,
        shards: list[Path],
        *,
        name: str,
        column: str,
        labels: Labels | None = None,
        class_names: list[str] | None = None,
        notes: tuple[str, ...] = (),
        label_column: str | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        self.label_column = label_column
        self.shards = shards
        self.root = shards[0].resolve().parent
        self.name = name
        self.column = column
        self.labels = labels
        self.class_names = class_names
        self.notes = notes
        self._groups: list[tuple[int, int]] = []  # (shard, row group in it)
        rows: list[int] = []
        for number, shard in enumerate(shards):
            metadata = pq.read_metadata(shard)
            for group in range(metadata.num_row_groups):
                self._groups.append((number, group))
                rows.append(metadata.row_group(group).num_rows)
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]).astype(np.int64)
        self._is_struct = _is_struct(pq.read_schema(shards[0]).field(column).type)
        self._ids = self._unique_paths()
        self._fresh()

    def _fresh(self) -> None:
        self._files: dict[int, Any] = {}
        self._buffer: OrderedDict[int, Any] = OrderedDict()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        # A worker opens the files itself: neither handles nor buffered bytes are sent to it.
        return {**self.__dict__, "_files": {}, "_buffer": OrderedDict()}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def item_id(self, index: int) -> str:
        """The path stored with the image where these are unique; else ``shard#row``."""
        if self._ids is not None:
            return str(self._ids[index].as_py())
        group, row = self._locate(index)
        shard, _ = self._groups[group]
        first = self._starts[self._groups.index((shard, 0))]
        return f"{portable(self.shards[shard].name)}#{self._starts[group] - first + row}"

    def encoded(self, index: int) -> bytes:
        """The encoded bytes of one image."""
        import pyarrow as pa

        group, row = self._locate(index)
        try:
            value = self._read(group)[row].as_py()
        except (OSError, pa.ArrowException) as error:
            raise CorruptImage(self.item_id(index), f"its row group cannot be read: {error}") from None
        if value is None:
            raise CorruptImage(
                self.item_id(index), "the table holds no bytes for it (only a path, which is not followed)"
            )
        return bytes(value)

    @property
    def files(self) -> list[Path]:
        """The shards."""
        return self.shards

    def other_columns(self) -> dict[str, list[Any]]:
        """The columns of integers, text or truth values that are not the labels."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        def plain(kind: Any) -> bool:
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            checks = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)
            return any(is_kind(kind) for is_kind in checks)

        names = [f.name for f in pq.read_schema(self.shards[0]) if f.name != self.label_column and plain(f.type)]
        tables = [pq.ParquetFile(shard).read(columns=names) for shard in self.shards]
        return {name: [value for table in tables for value in table.column(name).to_pylist()] for name in names}

    def release(self) -> None:
        """Forget the buffered row groups."""
        self._fresh()

    def _locate(self, index: int) -> tuple[int, int]:
        group = int(np.searchsorted(self._starts, index, side="right")) - 1
        return group, index - int(self._starts[group])

    def _read(self, group: int) -> Any:
        import pyarrow.parquet as pq

        if os.getpid() != self._process:
            # After a fork the parent's buffers may be read, but its file handles must not be shared.
            self._files, self._process = {}, os.getpid()
        if group in self._buffer:
            self._buffer.move_to_end(group)
            return self._buffer[group]
        shard, number = self._groups[group]
        if shard not in self._files:
            self._files[shard] = pq.ParquetFile(self.shards[shard], memory_map=True)
        leaf = f"{self.column}.bytes" if self._is_struct else self.column
        column = self._files[shard].read_row_group(number, columns=[leaf], use_threads=False).column(self.column)
        values = column.combine_chunks()
        values = values.field("bytes") if self._is_struct else values
        self._buffer[group] = values
        while len(self._buffer) > 1 and sum(kept.nbytes for kept in self._buffer.values()) > BUFFER_BYTES:
            self._buffer.popitem(last=False)
        return values

    def _unique_paths(self) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        kind = pq.read_schema(self.shards[0]).field(self.column).type
        if not self._is_struct or kind.get_field_index("path") < 0 or not len(self):
            return None
        tables = [pq.ParquetFile(shard).read(columns=[f"{self.column}.path"]) for shard in self.shards]
        chunks = [chunk.field("path") for table in tables for chunk in table.column(self.column).chunks]
        paths = pa.chunked_array(chunks).combine_chunks()
        unique = paths.null_count == 0 and pc.count_distinct(paths).as_py() == len(paths)
        return paths if unique else None


def _is_struct(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def image_columns(schema: Any) -> list[str]:
    """Names of the columns that hold encoded images: struct<bytes, …> or plain binary."""
    import pyarrow as pa

    return [
        f.name for f in schema if _is_struct(f.type) or pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)
    ]


def read_parquet_schema(path: Path) -> Any:
    """The schema of a Parquet file; :class:`InputError` where it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except PermissionError:
        raise InputError(f"{visible(path)}: permission denied") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{visible(path)}: not a readable Parquet file ({visible(error)})") from None


def open_parquet(shards: list[Path], *, name: str, label_column: str | None = None) -> ParquetSource:
    """Images from one or more shards of one data set, in natural order of their names.

    The image column is the only one that holds bytes, or the one called ``image`` or ``img``; the label column is
    ``label_column``, or the first of the usual names, or the only one the metadata calls a ClassLabel.
    """
    import pyarrow.parquet as pq

    schema = read_parquet_schema(shards[0])
    where = visible(shards[0])
    for other in shards[1:]:
        if not read_parquet_schema(other).equals(schema):
            raise InputError(
                f"{visible(other)}: its columns differ from those of {where}; give the shards of one data set"
            )
    columns = image_columns(schema)
    preferred = [column for column in ("image", "img") if column in columns] or columns
    if len(preferred) > 1 and len(columns) > 1 and preferred[0] not in ("image", "img"):
        raise InputError(f"{where}: several columns hold bytes ({some(columns)}); call the one with the images 'image'")
    column = preferred[0]
    class_labels, notes = _class_labels(schema, where)
    if label_column is not None and label_column not in schema.names:
        raise InputError(f"{where}: no label column {visible(label_column)!r}; there are {some(schema.names)}")
    if label_column is None:
        label_column = next((usual for usual in LABEL_COLUMNS if usual in schema.names), None)
    if label_column is None and len(class_labels) > 1:
        raise InputError(f"{where}: several label columns ({some(list(class_labels))}); choose one with labels=")
    if label_column is None:
        label_column = next(iter(class_labels), None)
    source = ParquetSource(shards, name=name, column=column, label_column=label_column, notes=notes)
    if not len(source):
        raise InputError(f"{where}: the table has no rows")
    if label_column is not None:
        tables = [pq.ParquetFile(shard).read(columns=[label_column]) for shard in shards]
        values = [value for table in tables for value in table.column(label_column).to_pylist()]
        source.labels, source.class_names = read_labels(
            values, len(source), f"{where}, column {visible(label_column)}", class_labels.get(label_column)
        )
    return source


def _class_labels(schema: Any, where: str) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Class names by column from the metadata key ``huggingface``, and a note if that cannot be read.

    Entries that are not as expected are not used.
    """
    content = (schema.metadata or {}).get(b"huggingface")
    if content is None:
        return {}, ()
    try:
        features = parse_json(content)["info"]["features"]
        found = {name: spec["names"] for name, spec in features.items() if spec.get("_type") == "ClassLabel"}
        return {n: v for n, v in found.items() if n in schema.names and all(isinstance(name, str) for name in v)}, ()
    except ValueError as error:
        return {}, (f"{where}: the metadata 'huggingface' cannot be read ({error}): class names are not known.",)
    except (KeyError, TypeError, AttributeError):
        return {}, ()
