"""Tar shards in the layout of WebDataset, local or remote: their images, or their columns."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.progress import progress_bar
from coulomb.ground.text import portable, visible
from coulomb.tables.labels import LABEL_COLUMNS, choose_label_column, read_labels
from coulomb.tables.shards.addresses import short_names
from coulomb.tables.shards.blocks import Blocks, cut_blocks
from coulomb.tables.shards.remote import Stamp
from coulomb.tables.shards.store import Store, find_stamp, version_number
from coulomb.tables.shards.table import ShardTable, find_table, make_table
from coulomb.tables.shards.tar import list_tar
from coulomb.tables.sheet import Sheet
from coulomb.tables.source import EncodedSource
from coulomb.tables.texts import strings

IMAGE = "image"  # the column of images
TABLE_THREADS = 32  # requests at the same time while tables are made; each is small


class TarSource(EncodedSource):
    """Images in tar shards. The place of each image comes from a table per shard, see `coulomb.tables.shards.table`.

    In memory are 21 bytes per image and the names; images are read by range when they are needed.
    """

    kind = "tar"
    single_images = True
    blocks: Blocks

    def __init__(self, addresses: list[str], stamps: list[Stamp], tables: list[ShardTable], *, name: str) -> None:
        self.name = name
        self.store = Store(addresses, stamps)
        self.remote = self.store.remote
        self.shard_names = [portable(each) for each in short_names(addresses)]
        self._starts = np.concatenate([[0], np.cumsum([len(table) for table in tables])]).astype(np.int64)
        self.offsets = np.concatenate([table.offsets for table in tables])
        self.sizes = np.concatenate([table.sizes for table in tables])
        self._names = np.concatenate([table.names for table in tables])
        self._ends = np.flatnonzero(self._names == 0)
        shard = np.repeat(np.arange(len(tables), dtype=np.int32), np.diff(self._starts))
        self.blocks = cut_blocks(shard, self.offsets, self.sizes)
        self.label_column: str | None = None
        self.notes = (*_notes(self.shard_names, tables), *self.store.notes())

    def __len__(self) -> int:
        return len(self.offsets)

    def item_id(self, index: int) -> str:
        """Returns ``shard/member``, such as ``train-0003.tar/000017.jpg``."""
        begin = int(self._ends[index - 1]) + 1 if index else 0
        name = self._names[begin : int(self._ends[index])].tobytes().decode("utf-8", "backslashreplace")
        return f"{self.shard_names[self._shard(index)]}/{name}"

    def _shard(self, index: int) -> int:
        return int(np.searchsorted(self._starts, index, side="right")) - 1

    def encoded(self, index: int) -> bytes:
        """Returns the encoded bytes of one image.

        Raises:
            InputError: its shard cannot be read any more; this is not an image to be skipped.
        """
        index = int(index)
        start, block = int(self.offsets[index]), int(self.blocks.of[index])
        inside = (int(self.blocks.start[block]), int(self.blocks.end[block]))
        return self.store.read(self._shard(index), start, start + int(self.sizes[index]), inside)

    def _range(self, unit: int) -> tuple[int, int, int]:
        if unit >= 0:
            return int(self.blocks.shard[unit]), int(self.blocks.start[unit]), int(self.blocks.end[unit])
        index = -1 - unit
        start = int(self.offsets[index])
        return self._shard(index), start, start + int(self.sizes[index])

    def fetch(self, unit: int) -> None:
        """Puts a block b ≥ 0, or a single image i given as −1 − i, into the cache."""
        self.store.fetch(*self._range(unit))

    def unit_size(self, unit: int) -> int:
        """Returns the size of a block or an image in bytes, see `fetch`."""
        _, start, end = self._range(unit)
        return end - start

    @property
    def files(self) -> list[Path]:
        """The shards, if they are local."""
        return [] if self.remote else [Path(address) for address in self.store.addresses]

    def stored_bytes(self) -> int:
        """Returns the size of all shards."""
        return sum(stamp.size for stamp in self.store.stamps)

    def stamps(self) -> list[tuple[int | None, int]]:
        """Returns the size of each image, and a number that changes with its shard."""
        versions = [version_number(stamp) for stamp in self.store.stamps]
        counts = np.diff(self._starts).tolist()
        shards = [versions[shard] for shard, count in enumerate(counts) for _ in range(count)]
        return list(zip(self.sizes.tolist(), shards, strict=True))

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the keys of ``json`` members, and ``cls`` and ``txt``, that are not the labels."""
        columns: dict[str, list[Any]] = {}
        for number, table in enumerate(self.tables()):
            for name, column in table.columns.items():
                if name == self.label_column:
                    continue
                values = columns.setdefault(name, [None] * len(self))
                known = [*column.values, None]
                values[int(self._starts[number]) : int(self._starts[number + 1])] = [
                    known[c] for c in column.codes.tolist()
                ]
        return columns

    def tables(self) -> Iterator[ShardTable]:
        """Yields the table of each shard."""
        for number, (address, stamp) in enumerate(zip(self.store.addresses, self.store.stamps, strict=True)):
            yield find_table(address, stamp, partial(_make, self.store, number))

    def release(self) -> None:
        """Closes the files."""
        self.store.close()


def _notes(names: list[str], tables: list[ShardTable]) -> list[str]:
    """Returns one sentence for each kind of member that is skipped, and for damaged shards, with their names."""
    skipped: Counter[str] = Counter()
    for table in tables:
        skipped.update(table.skipped)
    notes = [f"Skipped in the shards: {count} {reason}." for reason, count in skipped.items()]
    damaged = [(name, table) for name, table in zip(names, tables, strict=True) if table.damage]
    if damaged:
        listed = "; ".join(f"{visible(name)}: {table.damage} after {len(table)} images" for name, table in damaged[:5])
        more = f"; and {len(damaged) - 5} more" if len(damaged) > 5 else ""
        notes.append(
            f"{len(damaged)} of {len(tables)} shards are damaged; their images up to there are used ({listed}{more})."
        )
    return notes


def _make(store: Store, shard: int) -> ShardTable:
    listing = list_tar(partial(store.read_directly, shard), store.stamps[shard].size)
    store.require_unchanged(shard)
    return make_table(listing)


def open_tar(addresses: list[str], *, name: str, label_column: str | None = None) -> TarSource:
    """Opens the images of tar shards; tables are made for shards without one, with a progress bar.

    Labels are in the column ``label_column``: ``cls``, ``txt`` or a key of the ``json`` members. The default is ``cls``, then
    a usual name such as ``label``, then ``txt`` if texts repeat (captions do not).

    Raises:
        InputError: a shard does not exist or is no tar file, or there are no images.
    """
    source, tables = list_shards(addresses, name)
    _label(source, tables, label_column)
    return source


def list_shards(addresses: list[str], name: str) -> tuple[TarSource, list[ShardTable]]:
    """Returns the images of tar shards, without labels, and the table of each shard. Raises `InputError`, see `open_tar`."""
    with ThreadPoolExecutor(TABLE_THREADS) as pool:
        stamps = list(pool.map(find_stamp, addresses))
        store = Store(addresses, stamps)

        def table(shard: int) -> ShardTable:
            return find_table(addresses[shard], stamps[shard], partial(_make, store, shard))

        with progress_bar(len(addresses), "tables of shards", None) as advance:
            tables = []
            numbers = range(len(addresses))
            # Local shards one by one: their tables are a matter of computing, not of waiting.
            for each in pool.map(table, numbers) if store.remote else map(table, numbers):
                tables.append(each)
                advance(1)
    store.close()
    for address, each in zip(addresses, tables, strict=True):
        if not len(each) and each.damage is not None:
            raise InputError(f"{visible(address)}: not a readable tar file ({each.damage}); leave it out or restore it")
    source = TarSource(addresses, stamps, tables, name=name)
    if not len(source):
        raise InputError(f"{visible(name)}: no images in {len(addresses)} tar files. {' '.join(source.notes)}".rstrip())
    return source, tables


def _label(source: TarSource, tables: list[ShardTable], requested: str | None) -> None:
    names = list(dict.fromkeys(column for table in tables for column in table.columns))
    usual = [column for column in ("cls", *LABEL_COLUMNS) if column in names]
    chosen = requested
    if requested is not None:
        choose_label_column(names, requested, (), visible(source.name))
    elif usual:
        chosen = usual[0]
    elif "txt" in names:
        distinct = len({value for table in tables if "txt" in table.columns for value in table.columns["txt"].values})
        if distinct <= len(source) / 2:
            chosen = "txt"
        else:
            source.notes += (f"The .txt members hold {distinct} different texts, so they are captions, not labels.",)
    if chosen is None:
        return
    # The distinct values are few; they are converted once instead of one value per image.
    values: dict[tuple[type, Any], int] = {}
    rows = []
    for table in tables:
        column = table.columns.get(chosen)
        if column is None:
            rows.append(np.full(len(table), -1, dtype=np.int64))
            continue
        numbers = [values.setdefault((type(value), value), len(values)) for value in column.values]
        rows.append(np.array([*numbers, -1], dtype=np.int64)[column.codes])
    distinct_values = [value for _, value in values]
    labels, source.class_names = read_labels(
        distinct_values, len(distinct_values), f"{visible(source.name)}, {visible(chosen)}"
    )
    if labels is not None:
        source.labels = np.append(labels, -1)[np.concatenate(rows)]
    source.label_column = chosen


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
