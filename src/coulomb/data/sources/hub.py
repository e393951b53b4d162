"""Images in tables: Parquet files and data sets of the Hugging Face hub."""

import os
import socket
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from coulomb.data.decode import EncodedSource
from coulomb.data.labels import LABEL_COLUMNS, read_labels
from coulomb.data.names import portable, some, visible
from coulomb.data.source import CorruptImage, Labels
from coulomb.data.sources.files import is_inside
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


class HubSource(EncodedSource):
    """A ``datasets.Dataset`` with an Image column, read undecoded from its memory-mapped tables.

    ``label_column`` None takes the first of the usual names, or the only ClassLabel.
    """

    kind = "hub"

    def __init__(
        self, dataset: Any, *, name: str, label_column: str | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        from datasets import ClassLabel, Image

        features = dataset.features
        images = [column for column, feature in features.items() if isinstance(feature, Image)]
        if not images:
            raise InputError(f"{visible(name)}: no image column among {some(list(features))}")
        self.column = next((column for column in ("image", "img") if column in images), images[0])
        self.name = name
        self.notes = notes
        classes = [column for column, feature in features.items() if isinstance(feature, ClassLabel)]
        if label_column is not None and label_column not in features:
            raise InputError(
                f"{visible(name)}: no label column {visible(label_column)!r}; there are {some(list(features))}"
            )
        if label_column is None:
            label_column = next((usual for usual in LABEL_COLUMNS if usual in features), None)
        if label_column is None and len(classes) > 1:
            raise InputError(f"{visible(name)}: several label columns ({some(classes)}); choose one with labels=")
        if label_column is None and classes:
            label_column = classes[0]
        if label_column is not None:
            names = getattr(features[label_column], "names", None)
            values = dataset.with_format(None)[label_column]
            self.labels, self.class_names = read_labels(list(values), len(dataset), visible(name), names)
        self._others = dataset.with_format(None).remove_columns([*images, *([label_column] if label_column else [])])
        self.dataset = (
            dataset.with_format(None).select_columns([self.column]).cast_column(self.column, Image(decode=False))
        )
        if not len(dataset):
            raise InputError(f"{visible(name)}: the data set is empty")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_others": None}  # workers read images only

    def other_columns(self) -> dict[str, list[Any]]:
        """The columns of integers, text or truth values that are not the labels."""
        kinds = {name: getattr(feature, "dtype", "") for name, feature in self._others.features.items()}
        plain = [name for name, kind in kinds.items() if str(kind).startswith(("int", "uint", "string", "bool"))]
        return {name: list(self._others[name]) for name in plain}

    def __len__(self) -> int:
        return len(self.dataset)

    def item_id(self, index: int) -> str:
        """The row number, with leading zeros: paths of hub rows are not unique."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def encoded(self, index: int) -> bytes | Path:
        """The stored bytes, or a file inside the hub's own download folder."""
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


@contextmanager
def _offline_where_there_is_no_network() -> Iterator[None]:
    """Look into the download cache at once where the hub's address is unknown: the loader would retry for half a minute."""
    import datasets
    import huggingface_hub.constants as hub

    host = urlsplit(datasets.config.HF_ENDPOINT).hostname
    places = ((datasets.config, "HF_HUB_OFFLINE"), (hub, "HF_HUB_OFFLINE"))
    before = [getattr(place, name) for place, name in places]
    try:
        if not getproxies():  # behind a proxy names need not resolve here
            socket.getaddrinfo(host, 443)
    except OSError:
        for place, name in places:
            setattr(place, name, True)
    try:
        yield
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)


def open_hub(name: str, *, label_column: str | None = None) -> HubSource:
    """``user/name`` or ``user/name:split`` (default split: ``train``, or the only one). A data set's own code never runs."""
    import datasets

    name, _, split = name.partition(":")
    try:
        with _offline_where_there_is_no_network():
            found = datasets.load_dataset(name)
    except Exception as error:  # every layer below has its own errors for "no network" and "no such name"
        raise InputError(
            f"{visible(name)}: no such file or folder here, and not available as a data set of the hub "
            f"({type(error).__name__}: {visible(error, 160)}); check the spelling and the network, or download it first"
        ) from None
    splits = list(found)
    wanted = split or ("train" if "train" in splits else splits[0])
    if wanted not in splits or (not split and len(splits) > 1 and "train" not in splits):
        raise InputError(f"{visible(name)}: choose a split, {visible(name)}:SPLIT with one of {some(splits)}")
    notes = () if len(splits) == 1 else (f"Split {wanted!r} of {some(splits)}.",)
    return HubSource(found[wanted], name=f"{name}:{wanted}", label_column=label_column, notes=notes)
