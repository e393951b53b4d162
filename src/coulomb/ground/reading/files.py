"""Reads bytes, lines and .npz arrays of regular files within size limits."""

import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError

MIB = 2**20
RESTORE = "restore it from a copy of the run folder"
MOST_LINE = 16 * MIB


def check_file(path: Path, *, most: int | None = None, remedy: str = RESTORE) -> int:
    """Returns the size of ``path`` in bytes.

    Raises:
        InputError: the file does not exist, is not a regular file (reading a pipe would block), or is larger than ``most``
            bytes. ``remedy`` is the end of the message.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise InputError(f"{path}: cannot be read (the file does not exist); {remedy}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', error)}); {remedy}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: is not a regular file; {remedy}")
    if most is not None and status.st_size > most:
        raise InputError(f"{path}: is larger than {size_text(most)}, the limit for this file; {remedy}")
    return status.st_size


def read_bytes(path: Path, *, most: int, remedy: str = RESTORE) -> bytes:
    """Returns the content of a regular file of at most ``most`` bytes; raises `InputError` like `check_file`."""
    check_file(path, most=most, remedy=remedy)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def read_lines(path: Path, *, most: int = 1024 * MIB, remedy: str = RESTORE) -> Iterator[bytes]:
    """Yields the lines of a file of at most ``most`` bytes, with line ends.

    Raises:
        InputError: as in `check_file`, or for a line longer than 16 MiB.
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
    """Formats a ``size`` in bytes: "512 KiB", "1.5 GiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size / 1024:.3g} KiB"


MOST_EXPANDED = 1024 * MIB
CHUNK = 16 * MIB


class Arrays:
    """The arrays of an open .npz file by name, read on access.

    Raises ValueError for a name that does not hold a plain array of the declared size.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.names = [name.removesuffix(".npy") for name in archive.namelist()]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise ValueError(f"it holds no array {name!r}")
        member = self._archive.getinfo(self._archive.namelist()[self.names.index(name)])
        with self._archive.open(member) as file:
            shape, fortran, dtype = _header(file)
            if dtype.hasobject:
                raise ValueError("it holds pickled Python objects, which are never loaded because they could run code")
            size = int(np.prod([1, *shape], dtype=object)) * dtype.itemsize
            if size != member.file_size - file.tell():
                raise ValueError(f"{name!r} declares an array of {list(shape)}, but its data have another size")
            array = np.empty(shape, dtype, order="F" if fortran else "C")
            content = array.ravel(order="K").view(np.uint8)
            done = 0
            while done < size:
                chunk = file.read(CHUNK)
                if not chunk:
                    raise ValueError(f"{name!r} is truncated")
                content[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                done += len(chunk)
        return array


@contextmanager
def open_arrays(path: Path, *, most: int = MOST_EXPANDED, remedy: str = RESTORE, smaller: str = "") -> Iterator[Arrays]:
    """Opens an .npz file. Declared sizes are checked before anything is decompressed.

    Args:
        path: the file.
        most: largest size of all arrays in bytes; 20 times the size of the file if that is more.
        remedy: end of error messages.
        smaller: end of the message for a file whose arrays are larger.

    Raises:
        InputError: the file is missing, damaged, not an .npz file, or its arrays are too large.
    """
    size = check_file(path, remedy=remedy)
    try:
        with zipfile.ZipFile(path) as archive:
            # Reading stops at the declared size, so the archive cannot expand to more than it declares.
            expanded = sum(member.file_size for member in archive.infolist())
            if expanded > max(most, 20 * size):
                raise InputError(
                    f"{path}: {size_text(size)} that expand to {size_text(expanded)}, more than the limit of "
                    f"{size_text(max(most, 20 * size))}; {smaller or remedy}"
                )
            yield Arrays(archive)
    except InputError:
        raise
    except Exception as error:  # a damaged archive fails in many ways: zlib.error, EOFError, NotImplementedError, …
        if isinstance(error, PermissionError):
            raise InputError(f"{path}: permission denied") from None
        raise InputError(f"{path}: not a readable NumPy file ({error or type(error).__name__}); {remedy}") from None


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"format {version} of the .npy data is not supported")
