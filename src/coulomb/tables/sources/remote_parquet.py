"""Images in Parquet files on a server: row groups are read by range, through the cache."""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.text import visible
from coulomb.tables.shards.ahead import THREADS
from coulomb.tables.shards.store import Store, find_stamp, version_number
from coulomb.tables.sources.parquet import ParquetSource, describe_parquet


class RemoteParquetSource(ParquetSource):
    """Images in a column of Parquet shards that are read by range: of each row group only the column of images."""

    remote = True

    def __init__(self, shards: list[str], footers: list[Any], *, store: Store, **options: Any) -> None:
        self.store = store
        super().__init__(shards, footers, **options)
        self.notes = (*self.notes, *store.notes())
        assert self.blocks is not None
        sizes = np.array([stamp.size for stamp in store.stamps])
        if (self.blocks.start < 0).any() or (self.blocks.end > sizes[self.blocks.shard]).any():
            raise InputError(f"{visible(self.name)}: a row group leads outside its file; the file is damaged")

    def open_shard(self, shard: int) -> Any:
        """Opens a shard as ``pyarrow.parquet.ParquetFile``."""
        import pyarrow.parquet as pq

        assert self.blocks is not None
        mine = self.blocks.shard == shard
        blocks = list(zip(self.blocks.start[mine].tolist(), self.blocks.end[mine].tolist(), strict=True))
        return pq.ParquetFile(RangeFile(self.store, shard, blocks))

    def fetch(self, unit: int) -> None:
        """Puts the images of a row group into the cache."""
        assert self.blocks is not None
        self.store.fetch(int(self.blocks.shard[unit]), int(self.blocks.start[unit]), int(self.blocks.end[unit]))

    def unit_size(self, unit: int) -> int:
        """Returns the size of a row group in bytes."""
        assert self.blocks is not None
        return int(self.blocks.end[unit] - self.blocks.start[unit])

    @property
    def files(self) -> list[Path]:
        """No local files."""
        return []

    def stored_bytes(self) -> int:
        """Returns the size of all shards."""
        return sum(stamp.size for stamp in self.store.stamps)

    def stamps(self) -> list[tuple[int | None, int]]:
        """Returns None and a number that changes with its shard, for each image."""
        assert self.blocks is not None
        numbers = [version_number(stamp) for stamp in self.store.stamps]
        return [(None, numbers[shard]) for shard in self.blocks.shard[self.blocks.of].tolist()]


class RangeFile(io.RawIOBase):
    """A shard of a store as a file that can be read and sought. ``blocks``: ranges that may be in the cache as a whole."""

    def __init__(self, store: Store, shard: int, blocks: list[tuple[int, int]]) -> None:
        self.store, self.shard, self.blocks = store, shard, blocks
        self.size, self.position = store.stamps[shard].size, 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves to a position."""
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def tell(self) -> int:
        """Returns the position."""
        return self.position

    def read(self, count: int | None = -1) -> bytes:
        """Returns the next ``count`` bytes."""
        start = self.position
        end = self.size if count is None or count < 0 else min(self.size, start + count)
        if start >= end:
            return b""
        self.position = end
        inside = next((block for block in self.blocks if block[0] <= start and end <= block[1]), None)
        return self.store.read(self.shard, start, end, inside)


def open_remote_parquet(addresses: list[str], *, name: str, label_column: str | None = None) -> ParquetSource:
    """Opens the images in Parquet files given by URLs, as `coulomb.tables.sources.parquet.open_parquet` opens local ones.

    Raises:
        InputError: a file does not exist or is not Parquet, columns differ, or there are no images.
    """
    kind, footers = remote_footers(addresses)
    return describe_parquet(kind, addresses, footers, name, label_column)


def remote_footers(addresses: list[str]) -> tuple[Callable[..., RemoteParquetSource], list[Any]]:
    """Returns a constructor of a source for Parquet files given by URLs, and their footers. Raises `InputError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with ThreadPoolExecutor(THREADS) as pool:
        store = Store(addresses, list(pool.map(find_stamp, addresses)))

        def footer(shard: int) -> Any:
            try:
                return pq.read_metadata(RangeFile(store, shard, []))
            except DataUnavailableError:
                raise
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InputError(
                    f"{visible(addresses[shard])}: not a readable Parquet file ({visible(error)})"
                ) from None

        footers = list(pool.map(footer, range(len(addresses))))
    return partial(RemoteParquetSource, store=store), footers
