"""Reads the headers of a tar file by range, without its data.

The standard library's tarfile reads chained headers by recursion, searches pax headers in quadratic time, and holds the map
of a sparse file in memory, which a hostile file can abuse; here the work is linear in the bytes that are read.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from coulomb.ground.text import visible

BLOCK = 512  # bytes
SMALLEST_CHUNK, CHUNK = 2**13, 2**20  # bytes per request
GAP = 2**16  # bytes; smaller gaps between headers are read through, because a request costs more than they do
MOST_HEADER = 2**20  # bytes of one header with its extensions
MOST_CHAINED = 64  # extension headers before one member; writers need four
FILE, OLD_FILE, FOLDER = b"0", b"\0", b"5"
SPARSE, LONG_NAME, LONG_LINK, PAX, PAX_SOLARIS, PAX_GLOBAL = b"S", b"L", b"K", b"x", b"X", b"g"
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", FOLDER, b"6")  # links, devices, folders and pipes, whatever size they declare
_SIGNATURES = (b"\x1f\x8b", b"BZ", b"(\xb5", b"\xfd7")  # of gzip, bzip2, zstd and xz


class Damage(Exception):
    """Where and why a tar file is damaged. Not a ValueError, as errors of reading are, which are no damage."""


class Member(NamedTuple):
    """A member of a tar file.

    Attributes:
        name: as stored; bytes that are not UTF-8 are surrogates.
        kind: one byte, such as `FILE`.
        sparse: whether the stored bytes are a map and the parts of the file between its holes.
        offset: offset of its bytes in the tar file.
        size: size of its stored bytes.
    """

    name: str
    kind: bytes
    sparse: bool
    offset: int
    size: int


class Chunks:
    """A file that is read by range, in chunks.

    Chunks double while reads are close together, so that many come with one request, and shrink when a large member is
    skipped.

    Args:
        read: returns the bytes ``start`` … ``end`` − 1 of the file.
        size: size of the file in bytes.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self.size = read, size
        self._start, self._chunk, self._next = 0, b"", 2 * SMALLEST_CHUNK

    def read(self, start: int, count: int) -> bytes:
        """Returns ``count`` bytes from ``start`` on; fewer at the end of the file."""
        end = min(start + count, self.size)
        if start >= end:
            return b""
        if not self._start <= start <= end <= self._start + len(self._chunk):
            if self._chunk:
                near = start - self._start - len(self._chunk) <= GAP
                self._next = min(2 * self._next, CHUNK) if near else SMALLEST_CHUNK
            self._start, self._chunk = start, self._read(start, min(max(end, start + self._next), self.size))
        return self._chunk[start - self._start : end - self._start]


def members(file: Chunks) -> Iterator[Member]:
    """Yields the members of a tar file up to its end marker. Global pax headers are skipped: they hold comments.

    Raises:
        Damage: the file is no tar file, is compressed, ends too early, or holds an invalid header.
    """
    position = 0
    while (found := _next(file, position)) is not None:
        member, position = found
        yield member


def _next(file: Chunks, position: int) -> tuple[Member, int] | None:
    """Returns the member whose first header is at ``position``, and the position after it; None at the end marker."""
    begin, chained, extended = position, 0, dict[str, str]()
    while True:
        if position > file.size:
            raise Damage("unexpected end of data")
        block = file.read(position, BLOCK)
        if block.count(0) == BLOCK and not chained:
            return None
        _check(block, position)
        kind, size = block[156:157], _number(block[124:136], position)
        data = position + BLOCK
        if kind not in (LONG_NAME, LONG_LINK, PAX, PAX_SOLARIS, PAX_GLOBAL):
            return _member(file, block, data, extended)
        position = data + _padded(size)
        chained += 1
        if position - begin > MOST_HEADER:
            raise Damage(f"a header of {position - begin} bytes at byte {begin}")
        if chained > MOST_CHAINED:
            raise Damage(f"more than {MOST_CHAINED} headers before one member at byte {begin}")
        if kind == LONG_NAME:
            extended.setdefault("path", _text(file.read(data, size)))  # the first of several headers counts
        elif kind in (PAX, PAX_SOLARIS):
            for key, value in _records(file.read(data, size), data):
                extended.setdefault(key, value)


def _member(file: Chunks, block: bytes, data: int, extended: dict[str, str]) -> tuple[Member, int]:
    """Returns the member of a header that ends at ``data``, and the position after it."""
    kind, size, name = block[156:157], _number(block[124:136], data - BLOCK), _text(block[:100])
    if kind == OLD_FILE and name.endswith("/"):
        kind = FOLDER
    if kind == SPARSE:
        more, begin = block[482], data
        while more:  # blocks that continue the map
            if len(further := file.read(data, BLOCK)) < BLOCK:
                raise Damage("unexpected end of data")
            more, data = further[504], data + BLOCK
            if data - begin > MOST_HEADER:
                raise Damage(f"a header of more than {MOST_HEADER} bytes at byte {begin}")
    elif prefix := _text(block[345:500]):
        name = f"{prefix}/{name}"
    name = extended.get("GNU.sparse.name", extended.get("path", name)).rstrip("/" if kind == FOLDER else "")
    if (declared := extended.get("size")) is not None:
        if not declared.isascii() or not declared.isdecimal() or len(declared) > 18:
            raise Damage(f"the size {visible(declared, 40)} of {visible(name, 80)}")
        size = int(declared)
    stored = 0 if kind in _WITHOUT_DATA else size
    if data + stored > file.size:
        raise Damage(f"it ends inside {visible(name, 80)}")
    sparse = kind == SPARSE or any(key.startswith("GNU.sparse.") for key in extended)
    return Member(name, kind, sparse, data, stored), data + _padded(stored)


def _check(block: bytes, position: int) -> None:
    """Raises `Damage` unless ``block`` is a header with the right checksum."""
    if len(block) == BLOCK:
        field = block[148:156]
        total = sum(block) - sum(field) + 8 * 32
        declared = _octal(field)
        if declared == total or declared == total - 256 * sum(each > 127 for each in block[:148] + block[156:]):
            return  # the second sum is of signed bytes, as some old programs compute it
    if position == 0 and block.startswith(_SIGNATURES):
        raise Damage("it is compressed; unpack it to a plain .tar")
    if position == 0 and not block:
        raise Damage("empty file")
    if not block:
        raise Damage("it ends without its end marker")
    raise Damage(f"no valid header at byte {position}")


def _records(content: bytes, position: int) -> Iterator[tuple[str, str]]:
    """Yields the records ``LENGTH KEY=VALUE\\n`` of a pax header."""
    start = 0
    while start < len(content) and content[start]:
        space = content.find(b" ", start, start + 20)
        digits = content[start:space] if space > 0 else b""
        end = start + int(digits) if digits.isdigit() else 0
        key, equals, value = content[space + 1 : end - 1].partition(b"=")
        if not space < end <= len(content) or content[end - 1 : end] != b"\n" or not equals:
            raise Damage(f"no valid header at byte {position + start}")
        yield key.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape")
        start = end


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _octal(field: bytes) -> int | None:
    digits = field.partition(b"\0")[0].strip() or b"0"
    return None if digits.strip(b"01234567") else int(digits, 8)


def _number(field: bytes, position: int) -> int:
    """Returns a size: octal digits, or base 256 after a first byte of 128."""
    number = int.from_bytes(field[1:], "big") if field[0] == 128 else _octal(field)
    if number is None:
        raise Damage(f"no valid header at byte {position}")
    return number
