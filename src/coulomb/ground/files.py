"""Writing files: atomically, as bytes, text or JSON; and lock files."""

import contextlib
import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

from coulomb.ground.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("coulomb")


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Context with a file that replaces ``path`` at its end: readers see the old or the new content, also after a kill.

    The file is temporary, in the same folder, flushed to disk and renamed; after an error it is deleted.

    Raises:
        InputError: the disk is full, or the folder is not writable.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror or error}); free some space, or check the permissions"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file as `written` does."""
    with written(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Writes JSON atomically: readers see the old or the new file, never a partial one."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes text atomically."""
    write_atomically(path, text.encode("utf-8"))


@contextmanager
def locked(path: Path, work: str = "training this run") -> Iterator[None]:
    """Holds the lock file ``path`` while the block runs; it contains the process id and the host as JSON.

    The lock is the kernel's (``flock``), which is released when the process ends in any way: the file of a killed process is
    taken over, and a recycled process id is not mistaken for its owner. Logs a warning if the file system or the platform has
    no such locks.

    Args:
        path: the lock file.
        work: what the process is doing, for the error message of another process.

    Raises:
        InputError: another process holds the lock.
    """
    file = _open(path, work)
    try:
        with contextlib.suppress(OSError):  # a full disk: the content is only for messages
            file.truncate(0)
            json.dump({"pid": os.getpid(), "host": platform.node()}, file)
            file.flush()
        yield
    finally:
        if fcntl is None:
            file.close()  # Windows deletes no open file
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.close()


def _open(path: Path, work: str) -> TextIO:
    while True:
        file = _opened(path)
        try:
            if fcntl is None:
                raise OSError("this platform has no flock")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read()
            file.close()
            raise InputError(
                f"{str(path.parent)!r}: another process{_described(owner)} is {work}; wait for it, or stop it"
            ) from None
        except OSError as error:
            log.warning(
                "%s: cannot be locked (%s); make sure that only one process is %s", path, error.strerror or error, work
            )
            return file
        if os.fstat(file.fileno()).st_nlink:  # otherwise its owner has just removed the file, and the lock is void
            # Forked data workers must not keep the lock of a killed run.
            os.register_at_fork(after_in_child=file.close)
            return file
        file.close()


def _opened(path: Path) -> TextIO:
    """Opens the file for reading and writing without truncating it or following a link."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644), "r+")
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({error.strerror}); remove it, or give another folder") from None


def _described(owner: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        process = json.loads(owner)
        return f" ({process['pid']} on {process['host']})"
    return ""
