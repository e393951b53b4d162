"""Reads byte ranges of shards: local ones directly, remote ones through the cache on disk."""

import os
from collections import OrderedDict
from stat import S_ISREG
from typing import Any

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.outages import unavailable
from coulomb.ground.randomness import derive_seed
from coulomb.ground.text import visible
from coulomb.tables.shards.cache import Cache, cache_folder, cache_limit
from coulomb.tables.shards.remote import CHANGED, Stamp, forget_listings, read_range, scheme, stamp

MOST_OPEN = 64  # local files that stay open per process


def find_stamp(address: str) -> Stamp:
    """Returns size and version of a shard; raises `DataUnavailableError` if it cannot be read."""
    if scheme(address) is not None:
        return stamp(address)
    try:
        status = os.stat(address)  # noqa: PTH116  for a thousand shards
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataUnavailableError(f"{visible(address)}: cannot be read ({reason})") from None
    if not S_ISREG(status.st_mode):
        raise DataUnavailableError(f"{visible(address)}: not a regular file")
    return Stamp(status.st_size, str(status.st_mtime_ns))


def version_number(stamp: Stamp) -> int:
    """Returns a number of 63 bits that changes with the stamp."""
    return derive_seed(stamp.size, stamp.version)


class Store:
    """Byte ranges of shards. It is picklable; every process opens its own files and connections.

    Args:
        addresses: paths or URLs of the shards.
        stamps: stamps of the shards; ranges of a shard with another stamp are refused.

    Raises:
        InputError: on Windows.
    """

    def __init__(self, addresses: list[str], stamps: list[Stamp]) -> None:
        if not hasattr(os, "pread"):
            raise InputError(
                "shards: Windows lacks the reads and locks that they need; use Linux, macOS or the Windows Subsystem for "
                "Linux, or unpack them into a folder"
            )
        self.addresses, self.stamps = addresses, stamps
        self.remote = any(scheme(address) is not None for address in addresses)
        self._cache = Cache(cache_folder(), cache_limit()) if self.remote else None
        self._reset()

    def _reset(self) -> None:
        self._files: OrderedDict[int, int] = OrderedDict()
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": OrderedDict(), "_process": -1}

    def read(self, shard: int, start: int, end: int, inside: tuple[int, int] | None = None) -> bytes:
        """Returns the bytes ``start`` … ``end`` − 1 of a shard.

        A remote range comes from the cached range ``inside`` (start, end) that contains it, if that is there; otherwise from
        its own cache entry, which is made.

        Raises:
            DataUnavailableError: the range cannot be read, or the shard changed.
        """
        if scheme(self.addresses[shard]) is None:
            return self._read_local(shard, start, end)
        assert self._cache is not None
        for first, last in ([inside] if inside is not None else []) + [(start, end)]:
            path = self._cache.path(self.addresses[shard], self.stamps[shard].version, first, last)
            if (data := self._cache.read(path, last - first, start - first, end - first)) is not None:
                return data
        data = self.fetch(shard, start, end)
        return self.read(shard, start, end) if data is None else data

    def fetch(self, shard: int, start: int, end: int) -> bytes | None:
        """Puts a range of a remote shard into the cache; returns its bytes if they were not there."""
        assert self._cache is not None
        address, expected = self.addresses[shard], self.stamps[shard]
        path = self._cache.path(address, expected.version, start, end)
        if self._cache.has(path, end - start):
            return None
        return self._cache.fill(path, end - start, lambda: read_range(address, start, end, expected))

    def read_directly(self, shard: int, start: int, end: int) -> bytes:
        """Returns a range without the cache."""
        if scheme(self.addresses[shard]) is None:
            return self._read_local(shard, start, end)
        return read_range(self.addresses[shard], start, end, self.stamps[shard])

    def require_unchanged(self, shard: int) -> None:
        """Raises `DataUnavailableError` if a shard has changed since it was opened, which not every read notices.

        Every reply of a web server has the version, so that it needs no request.
        """
        address = self.addresses[shard]
        if scheme(address) in ("http", "https"):
            return
        if scheme(address) is not None:
            forget_listings(address)
        if not self.stamps[shard].fits(find_stamp(address)):
            raise DataUnavailableError(f"{visible(address)}: {CHANGED}")

    def notes(self) -> list[str]:
        """Returns a sentence on shards whose changes cannot be noticed."""
        count = sum(not stamp.versioned for stamp in self.stamps)
        return [
            f"{count} of {len(self.stamps)} shards have neither an ETag nor a time of the last change: they are read from "
            "their server again by the next command, and a change while they are used is only noticed by their size."
        ] * (count > 0)

    def _read_local(self, shard: int, start: int, end: int) -> bytes:
        if os.getpid() != self._process:
            self._reset()  # positions are given with each read, but closing is not shared
        try:
            if shard not in self._files:
                while len(self._files) >= MOST_OPEN:
                    os.close(self._files.popitem(last=False)[1])
                file = os.open(self.addresses[shard], os.O_RDONLY | os.O_CLOEXEC)
                status = os.fstat(file)
                if Stamp(status.st_size, str(status.st_mtime_ns)) != self.stamps[shard]:
                    os.close(file)
                    raise DataUnavailableError(f"{visible(self.addresses[shard])}: {CHANGED}")
                self._files[shard] = file
            self._files.move_to_end(shard)
            data = os.pread(self._files[shard], end - start, start)
        except OSError as error:
            raise unavailable(self.addresses[shard], error) from None
        if len(data) != end - start:
            raise DataUnavailableError(f"{visible(self.addresses[shard])}: {CHANGED}")
        return data

    def close(self) -> None:
        """Closes the local files."""
        for file in self._files.values():
            os.close(file)
        self._reset()
