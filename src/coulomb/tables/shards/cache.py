"""A cache of byte ranges on disk with a size limit, shared by processes."""

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.text import visible

try:
    import fcntl
except ImportError:  # Windows, where `Store` refuses shards
    fcntl = None  # type: ignore[assignment]

FOLDER = "COULOMB_CACHE"  # environment variable: folder of the cache
LIMIT = "COULOMB_CACHE_GB"  # environment variable: its largest size in GiB
DEFAULT_LIMIT = 20.0  # GiB
SMALLEST_LIMIT = 1.0  # GiB: two windows of 256 MiB, two of another process, and slack
STRIPES = 256  # lock files
STALE = 3600  # seconds after which the unfinished file of a killed process is deleted


def cache_folder() -> Path:
    """Returns the folder of the cache: ``$COULOMB_CACHE``, by default ``~/.cache/coulomb``."""
    given = os.environ.get(FOLDER)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coulomb"


def cache_limit() -> int:
    """Returns the limit in bytes, from ``$COULOMB_CACHE_GB``. Raises `InputError` if it is not a number of at least 1."""
    given = os.environ.get(LIMIT, "")
    try:
        limit = float(given) if given else DEFAULT_LIMIT
    except ValueError:
        limit = -1.0
    if not SMALLEST_LIMIT <= limit < 2**30:
        raise InputError(f"{LIMIT}={visible(given)!r}: must be a number of GiB, at least {SMALLEST_LIMIT:g}")
    return int(limit * 2**30)


class Cache:
    """Byte ranges on disk, one file each, the least recently used deleted first.

    Files are complete or absent: each is written under another name and renamed. One process at a time reads a missing
    range from its server, others wait. A killed process leaves no lock behind.

    Args:
        folder: folder of the cache, created if missing.
        limit: largest size of all files in bytes. Each process may exceed it by 1/64 for a moment.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.written = limit  # bytes since the files were last counted; at first they were never counted
        with self._usable():
            for name in ("ranges", "locks", "unfinished"):
                (folder / name).mkdir(parents=True, exist_ok=True)

    def path(self, url: str, version: str, start: int, end: int) -> Path:
        """Returns the file of a range, which may not exist."""
        digest = hashlib.blake2b(f"{url}\0{version}\0{start}\0{end}".encode(), digest_size=16).hexdigest()
        return self.folder / "ranges" / digest[:2] / digest

    def read(self, path: Path, whole: int, start: int, end: int) -> bytes | None:
        """Returns the bytes ``start`` … ``end`` − 1 of a file of ``whole`` bytes; None if it is absent."""
        with self._usable():
            try:
                file = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                if os.fstat(file).st_size != whole:  # the machine lost power after it was renamed
                    return None
                data = os.pread(file, end - start, start)
                with contextlib.suppress(OSError):
                    os.utime(file)
                return data if len(data) == end - start else None
            finally:
                os.close(file)

    def has(self, path: Path, whole: int) -> bool:
        """Returns True if the file is complete."""
        try:
            return path.stat().st_size == whole
        except OSError:
            return False

    def fill(self, path: Path, whole: int, fetch: Callable[[], bytes]) -> bytes | None:
        """Writes what ``fetch`` returns to the file unless another process did; returns the bytes if they were fetched here.

        Raises:
            DataUnavailableError: the disk is full or fails.
        """
        with self._locked(f"{int(path.name[:8], 16) % STRIPES:03d}"):
            if self.has(path, whole):
                return None
            data = fetch()
            with self._usable():
                self.make_room(whole)
                unfinished = self.folder / "unfinished" / uuid.uuid4().hex
                try:
                    path.parent.mkdir(exist_ok=True)
                    unfinished.write_bytes(data)
                    unfinished.replace(path)
                finally:
                    unfinished.unlink(missing_ok=True)
            return data

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Context that names the folder in an error of the operating system."""
        try:
            yield
        except OSError as error:
            raise DataUnavailableError(
                f"{FOLDER}={visible(self.folder)!r}: cannot be used ({error.strerror}); free space, lower {LIMIT}, or set "
                f"{FOLDER} to another folder"
            ) from None

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with self._usable():
            file = (self.folder / "locks" / name).open("w")
        with file:
            with self._usable():
                fcntl.flock(file, fcntl.LOCK_EX)  # released by the system when the process ends
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough if a worker was forked meanwhile

    def make_room(self, size: int) -> None:
        """Deletes the files that were not used for longest, if with ``size`` more bytes the limit may be exceeded."""
        self.written += size
        if self.written < self.limit // 64:
            return
        with self._locked("room"):
            self.written = size
            files = []
            for folder in os.scandir(self.folder / "ranges"):
                for entry in os.scandir(folder):
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat()
                        files.append((status.st_mtime_ns, status.st_size, entry.path))
            total = size + sum(each for _, each, _ in files)
            if total > self.limit:
                for _, each, path in sorted(files):
                    Path(path).unlink(missing_ok=True)
                    total -= each
                    if total <= self.limit * 7 // 8:
                        break
            for entry in os.scandir(self.folder / "unfinished"):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - entry.stat().st_mtime > STALE:
                        Path(entry.path).unlink(missing_ok=True)
