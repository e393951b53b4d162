"""Bytes and lines of a file, within a size limit. Pipes, devices and folders are refused."""

import stat
from collections.abc import Iterator
from pathlib import Path

from coulomb.errors import InputError

MIB = 2**20
RESTORE = "restore it from a copy of the run folder"
MOST_LINE = 16 * MIB


def check_file(path: Path, *, most: int | None = None, remedy: str = RESTORE) -> int:
    """Returns the size of ``path`` in bytes.

    Raises:
        InputError: there is no such file, it is not a regular file (a pipe would wait for ever), or it is larger than
            ``most`` bytes. ``remedy`` is the end of the message.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: cannot be read (the file does not exist); {remedy}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', error)}); {remedy}") from None
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path}: is not a regular file; {remedy}")
    if most is not None and found.st_size > most:
        raise InputError(f"{path}: is larger than {size_text(most)}, the limit for this file; {remedy}")
    return found.st_size


def read_bytes(path: Path, *, most: int, remedy: str = RESTORE) -> bytes:
    """The content of a regular file of at most ``most`` bytes; raises `InputError` as `check_file` does."""
    check_file(path, most=most, remedy=remedy)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def read_lines(path: Path, *, most: int = 1024 * MIB, remedy: str = RESTORE) -> Iterator[bytes]:
    """Yields the lines of a file of at most ``most`` bytes with their line ends; raises `InputError` as `check_file`
    does, and for a line longer than 16 MiB.
    """
    check_file(path, most=most, remedy=remedy)
    try:
        with path.open("rb") as file:
            while line := file.readline(MOST_LINE + 1):
                if len(line) > MOST_LINE:
                    raise InputError(f"{path}: has a line longer than {size_text(MOST_LINE)}; {remedy}")
                yield line
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def size_text(size: int) -> str:
    """``size`` bytes for people: "512 KiB", "1.5 GiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"
