"""Parquet files in the layout of the Hugging Face hub: their images, or their columns, of which images stay in the files."""

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.outages import unavailable
from coulomb.ground.reading import parse_json
from coulomb.ground.text import first_few, portable, visible
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.pictures import PictureRows
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.sheet import Sheet, is_plain
from coulomb.tables.source import EncodedSource, Labels

IMAGE_COLUMNS = ("image", "img")


class ParquetSource(EncodedSource):
    """Images in a column of Parquet shards, struct<bytes, path> or binary.

    Row groups are read when needed, and up to 320 MiB of encoded images are buffered per process. Training visits them in
    windows of 256 MiB (`coulomb.tables.shards.blocks`), so that each is read once per epoch and process.
    """

    kind = "parquet"
    buffer_bytes = 320 * 2**20

    def __init__(
        self,
        shards: list[Any],
        footers: list[Any],
        *,
        name: str,
        column: str,
        labels: Labels | None = None,
        class_names: list[str] | None = None,
        notes: tuple[str, ...] = (),
        label_column: str | None = None,
    ) -> None:
        self.label_column = label_column
        self.shards = shards
        self.root = shards[0].resolve().parent if isinstance(shards[0], Path) else None
        self.name = name
        self.column = column
        self.labels = labels
        self.class_names = class_names
        self.notes = notes
        self._groups: list[tuple[int, int]] = []  # (shard, row group in it)
        rows: list[int] = []
        for number, footer in enumerate(footers):
            for group in range(footer.num_row_groups):
                self._groups.append((number, group))
                rows.append(footer.row_group(group).num_rows)
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]).astype(np.int64)
        schema = footers[0].schema.to_arrow_schema()
        kind = schema.field(column).type
        self._is_struct = _is_struct(kind)
        self._plain_columns = [f.name for f in schema if f.name != label_column and is_plain(f.type)]
        self.leaf = f"{column}.bytes" if self._is_struct else column
        self.blocks = _row_groups(footers, self.leaf, self._groups, rows)
        has_paths = self._is_struct and kind.get_field_index("path") >= 0 and len(self) > 0
        self._ids = self._unique_paths() if has_paths else None
        self.has_paths = self._ids is not None
        self._reset()

    def open_shard(self, shard: int) -> Any:
        """Opens a shard as ``pyarrow.parquet.ParquetFile``."""
        import pyarrow.parquet as pq

        return pq.ParquetFile(self.shards[shard], memory_map=True)

    def read_columns(self, names: list[str]) -> dict[str, list[Any]]:
        """Returns the values of columns, without images."""
        tables = [self.open_shard(shard).read(columns=names) for shard in range(len(self.shards))]
        return {name: [value for table in tables for value in table.column(name).to_pylist()] for name in names}

    def _reset(self) -> None:
        self._files: dict[int, Any] = {}
        self._buffer: OrderedDict[int, Any] = OrderedDict()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        # Workers open the files themselves; neither handles nor buffered bytes are pickled.
        return {**self.__dict__, "_files": {}, "_buffer": OrderedDict()}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def item_id(self, index: int) -> str:
        """Returns the path stored with the image if paths are unique, else ``shard#row``."""
        if self._ids is not None:
            return str(self._ids[index].as_py())
        group, row = self._locate(index)
        shard, _ = self._groups[group]
        first = self._starts[self._groups.index((shard, 0))]
        return f"{portable(PurePosixPath(str(self.shards[shard]).split('?', 1)[0]).name)}#{self._starts[group] - first + row}"

    def encoded(self, index: int) -> bytes:
        """Returns the encoded bytes of one image.

        Raises:
            DataUnavailableError: its shard cannot be read any more; this is not an image to be skipped.
        """
        import pyarrow as pa

        group, row = self._locate(index)
        try:
            value = self.read_group(group)[row].as_py()
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None:  # of the file, not of its content
                raise unavailable(self.shards[self._groups[group][0]], error) from None
            raise CorruptImage(self.item_id(index), f"its row group cannot be read: {error}") from None
        if value is None:
            raise CorruptImage(self.item_id(index), "the table holds no bytes for it (paths in tables are not opened)")
        return bytes(value)

    @property
    def files(self) -> list[Path]:
        """The shards."""
        return self.shards

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns of numbers, text, booleans or dates that are not the labels."""
        return self.read_columns(self._plain_columns)

    def stamps(self) -> list[tuple[int | None, int]]:
        """Returns None and the time of the last change of its shard, for each image."""
        times = [path.stat().st_mtime_ns for path in self.shards]
        rows = np.diff(self._starts).tolist()
        return [
            (None, times[shard]) for (shard, _), count in zip(self._groups, rows, strict=True) for _ in range(count)
        ]

    def release(self) -> None:
        """Frees the buffered row groups."""
        self._reset()

    def _locate(self, index: int) -> tuple[int, int]:
        group = int(np.searchsorted(self._starts, index, side="right")) - 1
        return group, index - int(self._starts[group])

    def read_group(self, group: int) -> Any:
        """Returns the encoded images of a row group as an Arrow array of bytes, through the buffer."""
        if os.getpid() != self._process:
            # After a fork the buffers of the parent may be read, but its file handles must not be shared.
            self._files, self._process = {}, os.getpid()
        if group in self._buffer:
            self._buffer.move_to_end(group)
            return self._buffer[group]
        shard, number = self._groups[group]
        if shard not in self._files:
            self._files[shard] = self.open_shard(shard)
        column = self._files[shard].read_row_group(number, columns=[self.leaf], use_threads=False).column(self.column)
        values = column.combine_chunks()
        values = values.field("bytes") if self._is_struct else values
        self._buffer[group] = values
        while len(self._buffer) > 1 and sum(array.nbytes for array in self._buffer.values()) > self.buffer_bytes:
            self._buffer.popitem(last=False)
        return values

    def _unique_paths(self) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = [self.open_shard(shard).read(columns=[f"{self.column}.path"]) for shard in range(len(self.shards))]
        chunks = [chunk.field("path") for table in tables for chunk in table.column(self.column).chunks]
        paths = pa.chunked_array(chunks).combine_chunks()
        unique = paths.null_count == 0 and pc.count_distinct(paths).as_py() == len(paths)
        return paths if unique else None


def _is_struct(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0


def _row_groups(footers: list[Any], leaf: str, groups: list[tuple[int, int]], rows: list[int]) -> Blocks:
    """Returns the row groups as blocks: the bytes of the column of images in each."""
    schema = footers[0].schema
    column = next((number for number in range(len(schema)) if schema.column(number).path == leaf), 0)
    start, end = [], []
    for shard, group in groups:
        chunk = footers[shard].row_group(group).column(column)
        first = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
        start.append(first)
        end.append(first + chunk.total_compressed_size)
    shards = np.array([shard for shard, _ in groups], dtype=np.int32)
    of = np.repeat(np.arange(len(groups), dtype=np.int32), rows)
    return Blocks(of, shards, np.array(start, dtype=np.int64), np.array(end, dtype=np.int64))


def read_footer(path: Path) -> Any:
    """Returns the metadata of a Parquet file. Raises :class:`InputError` if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except PermissionError:
        raise InputError(f"{visible(path)}: permission denied") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{visible(path)}: not a readable Parquet file ({visible(error)})") from None


def image_columns(footer: Any) -> list[str]:
    """Returns the names of the columns of encoded images: struct<bytes, …> or binary."""
    import pyarrow as pa

    schema = footer.schema.to_arrow_schema()
    return [
        f.name for f in schema if _is_struct(f.type) or pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)
    ]


def open_parquet(shards: list[Path], *, name: str, label_column: str | None = None) -> ParquetSource:
    """Opens the images in one or more Parquet shards of a data set, see `describe_parquet`."""
    return describe_parquet(ParquetSource, shards, [read_footer(shard) for shard in shards], name, label_column)


def describe_parquet(
    kind: Callable[..., ParquetSource], shards: list[Any], footers: list[Any], name: str, label_column: str | None
) -> ParquetSource:
    """Returns a source of ``kind`` for the images in Parquet shards with these ``footers``.

    Images are in the only column of bytes, or in the one called ``image`` or ``img``. Labels are in ``label_column``, by
    default the first column with a usual name, or the only ClassLabel of the metadata. Raises :class:`InputError`.
    """
    schema, where = _same_schema(shards, footers)
    columns = image_columns(footers[0])
    if not columns:
        raise InputError(f"{where}: no column with image bytes; a list of paths must be given as one file")
    preferred = [column for column in IMAGE_COLUMNS if column in columns] or columns
    if len(preferred) > 1 and preferred[0] not in IMAGE_COLUMNS:
        raise InputError(f"{where}: several columns hold bytes ({first_few(columns)}); call the image column 'image'")
    classes, notes = class_labels(schema, where)
    label_column = choose_label_column(schema.names, label_column, list(classes), where)
    source = kind(shards, footers, name=name, column=preferred[0], label_column=label_column, notes=notes)
    if not len(source):
        raise InputError(f"{where}: the table has no rows")
    if label_column is not None:
        values = source.read_columns([label_column])[label_column]
        source.labels, source.class_names = read_labels(
            values, len(source), f"{where}, column {visible(label_column)}", classes.get(label_column)
        )
    return source


def _same_schema(shards: list[Any], footers: list[Any]) -> tuple[Any, str]:
    """Returns the schema of Parquet shards, and the first of them for messages; raises `InputError` if schemas differ."""
    schema, where = footers[0].schema.to_arrow_schema(), visible(shards[0])
    for shard, footer in zip(shards[1:], footers[1:], strict=True):
        if not footer.schema.to_arrow_schema().equals(schema):
            raise InputError(
                f"{visible(shard)}: its columns differ from the columns of {where}; give shards of one data set"
            )
    return schema, where


def class_labels(schema: Any, where: str) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Returns class names by column from the metadata key ``huggingface``, and a note if it cannot be read.

    Entries of an unexpected form are ignored.
    """
    content = (schema.metadata or {}).get(b"huggingface")
    if content is None:
        return {}, ()
    try:
        features = parse_json(content)["info"]["features"]
        names = {column: spec["names"] for column, spec in features.items() if spec.get("_type") == "ClassLabel"}
        return {c: n for c, n in names.items() if c in schema.names and all(isinstance(name, str) for name in n)}, ()
    except ValueError as error:
        return {}, (f"{where}: the metadata 'huggingface' cannot be read ({error}), so class names are unknown.",)
    except (KeyError, TypeError, AttributeError):
        return {}, ()


def open_parquet_sheet(shards: list[Path], name: str) -> Sheet:
    """Opens local Parquet files of one data set.

    Raises:
        InputError: a file cannot be read, or the columns of the files differ.
    """
    return describe_sheet(ParquetSource, shards, [read_footer(shard) for shard in shards], name)


def describe_sheet(kind: Any, shards: list[Any], footers: list[Any], name: str) -> Sheet:
    """Returns the sheet of Parquet files with these ``footers``, read by the source ``kind``."""
    import pyarrow as pa

    schema, where = _same_schema(shards, footers)
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
