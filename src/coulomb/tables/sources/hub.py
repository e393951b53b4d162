"""Images in tables: Parquet files in the layout of the Hugging Face hub, and data sets of the ``datasets`` library."""

import os
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.outages import unavailable
from coulomb.ground.reading import parse_json
from coulomb.ground.text import first_few, portable, visible
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.source import EncodedSource, Labels
from coulomb.tables.sources.files import is_inside

IMAGE_COLUMNS = ("image", "img")
HUB_NAME = re.compile(r"[\w][\w.-]*/[\w][\w.-]*(:[\w.-]+)?")
_PLAIN_TYPES = ("int", "uint", "float", "string", "large_string", "bool", "date", "timestamp")


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


def is_plain(kind: Any) -> bool:
    """Returns True for Arrow types of numbers, text, booleans and dates."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_text or (pa.types.is_primitive(kind) and not pa.types.is_decimal(kind))


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
    schema = footers[0].schema.to_arrow_schema()
    where = visible(shards[0])
    for shard, footer in zip(shards[1:], footers[1:], strict=True):
        if not footer.schema.to_arrow_schema().equals(schema):
            raise InputError(
                f"{visible(shard)}: its columns differ from the columns of {where}; give shards of one data set"
            )
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


class HubPictures(EncodedSource):
    """A column of images of a ``datasets.Dataset``, read undecoded from its memory-mapped tables."""

    kind = "hub"

    def __init__(self, dataset: Any, *, name: str, column: str) -> None:
        from datasets import Image

        self.name, self.column = name, column
        self.dataset = dataset.with_format(None).select_columns([column]).cast_column(column, Image(decode=False))

    def __len__(self) -> int:
        return len(self.dataset)

    def item_id(self, index: int) -> str:
        """Returns the row number with leading zeros; paths of hub rows are not unique."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def encoded(self, index: int) -> bytes | Path:
        """Returns the stored bytes, or a file inside the download folder of the hub."""
        from datasets import config

        value = self.dataset[int(index)][self.column]
        if value is None or (value["bytes"] is None and value["path"] is None):
            raise CorruptImage(self.item_id(index), "the row holds no image")
        if value["bytes"] is not None:
            return bytes(value["bytes"])
        downloads = [Path(folder).expanduser().resolve() for folder in (config.HF_CACHE_HOME, config.HF_DATASETS_CACHE)]
        path = Path(value["path"])
        if not any(is_inside(path, folder) for folder in downloads):
            raise CorruptImage(self.item_id(index), f"its path {path} leads outside the hub's download folder")
        return path


class HubSource(HubPictures):
    """A ``datasets.Dataset`` with an Image column.

    Labels are in ``label_column``, by default the first column with a usual name, or the only ClassLabel.
    """

    def __init__(
        self, dataset: Any, *, name: str, label_column: str | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        from datasets import ClassLabel, Image

        features = dataset.features
        images = [column for column, feature in features.items() if isinstance(feature, Image)]
        if not images:
            raise InputError(f"{visible(name)}: no image column among {first_few(list(features))}")
        column = next((column for column in IMAGE_COLUMNS if column in images), images[0])
        self.notes = notes
        classes = [column for column, feature in features.items() if isinstance(feature, ClassLabel)]
        label_column = choose_label_column(list(features), label_column, classes, visible(name))
        if label_column is not None:
            names = getattr(features[label_column], "names", None)
            values = dataset.with_format(None)[label_column]
            self.labels, self.class_names = read_labels(list(values), len(dataset), visible(name), names)
        self._others = dataset.with_format(None).remove_columns([*images, *([label_column] if label_column else [])])
        super().__init__(dataset, name=name, column=column)
        if not len(dataset):
            raise InputError(f"{visible(name)}: the data set is empty")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_others": None}  # workers read images only

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns of numbers, text, booleans or dates that are not the labels."""
        kinds = {name: getattr(feature, "dtype", "") for name, feature in self._others.features.items()}
        plain = [name for name, kind in kinds.items() if str(kind).startswith(_PLAIN_TYPES)]
        return {name: list(self._others[name]) for name in plain}


@contextmanager
def _offline_without_network() -> Iterator[None]:
    """Uses the download cache only if the address of the hub cannot be resolved; retries would take half a minute."""
    import datasets
    import huggingface_hub.constants as hub

    host = urlsplit(datasets.config.HF_ENDPOINT).hostname
    flags = ((datasets.config, "HF_HUB_OFFLINE"), (hub, "HF_HUB_OFFLINE"))
    before = [getattr(module, name) for module, name in flags]
    try:
        if not getproxies():  # behind a proxy, names need not resolve here
            socket.getaddrinfo(host, 443)
    except OSError:
        for module, name in flags:
            setattr(module, name, True)
    try:
        yield
    finally:
        for (module, name), value in zip(flags, before, strict=True):
            setattr(module, name, value)


def open_hub(name: str, *, label_column: str | None = None) -> HubSource:
    """Opens the images of a data set of the hub, see `load_hub`."""
    dataset, name, notes = load_hub(name)
    return HubSource(dataset, name=name, label_column=label_column, notes=notes)


def load_hub(name: str) -> tuple[Any, str, tuple[str, ...]]:
    """Loads a data set of the hub, ``user/name`` or ``user/name:split``, without running code of the data set.

    The default split is ``train``, or the only one. Raises :class:`InputError` if the data set is not available.

    Returns:
        The ``datasets.Dataset``, its name with the split, and notes.
    """
    import datasets

    name, _, split = name.partition(":")
    try:
        with _offline_without_network():
            loaded = datasets.load_dataset(name)
    except Exception as error:  # every layer of the loader has its own errors for a missing network or name
        raise InputError(
            f"{visible(name)}: no such file or folder here, and not available as a data set of the hub "
            f"({type(error).__name__}: {visible(error, 160)}); check the spelling and the network, or download it first"
        ) from None
    splits = list(loaded)
    chosen = split or ("train" if "train" in splits else splits[0])
    if chosen not in splits or (not split and len(splits) > 1 and "train" not in splits):
        raise InputError(f"{visible(name)}: choose a split, {visible(name)}:SPLIT with one of {first_few(splits)}")
    notes = () if len(splits) == 1 else (f"Split {chosen!r} of {first_few(splits)}.",)
    return loaded[chosen], f"{name}:{chosen}", notes
