"""One process trains a run at a time."""

import contextlib
import json
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from coulomb.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("coulomb")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` in the block; it has the process id and the host as JSON.

    The lock itself is the kernel's (``flock``), which releases it when the process ends, however it ends: a file that a
    killed process left behind is taken over, and a recycled process id is not mistaken for its owner. A warning is logged
    where the file system or the platform has no such locks.

    Raises:
        InputError: another process holds it.
    """
    file = _open(path)
    try:
        with contextlib.suppress(OSError):  # a full disk: for the message of others only; the lock holds without it
            file.truncate(0)
            json.dump({"pid": os.getpid(), "host": platform.node()}, file)
            file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.close()


def _open(path: Path) -> TextIO:
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
                f"{str(path.parent)!r}: another process{_described(owner)} is training this run; wait for it, or stop it"
            ) from None
        except OSError as error:
            log.warning(
                "%s: cannot be locked (%s); do not resume this run twice at once", path, error.strerror or error
            )
            return file
        if os.fstat(file.fileno()).st_nlink:  # else its owner has just removed it: that lock excludes nobody
            # Processes forked for the data must not keep the lock of a run that was killed.
            os.register_at_fork(after_in_child=file.close)
            return file
        file.close()


def _opened(path: Path) -> TextIO:
    """Open the file for reading and writing without truncating it or following a link."""
    try:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644), "r+")
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({error.strerror}); remove it, or give another folder") from None


def _described(owner: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = json.loads(owner)
        return f" ({found['pid']} on {found['host']})"
    return ""
