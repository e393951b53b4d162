"""Lists the images of a tar file in the layout of WebDataset, by its headers alone."""

import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coulomb.data.decode import image_extensions
from coulomb.data.source import visible
from coulomb.reading import parse_json

SMALLEST_CHUNK, CHUNK = 2**13, 2**20  # bytes per request
GAP = 2**16  # bytes; smaller gaps between headers are read through, because a request costs more than they do
LABELS = ("cls", "txt", "json")  # extensions
MOST_HEADER = 2**20  # bytes of one header with its extensions
MOST_LABEL = 2**16  # bytes of a .cls, .txt or .json member
MOST_TEXT = 1000  # characters of one value
MOST_KEYS = 64  # columns from the keys of .json members
MOST_IMAGE = 2**29  # bytes

PLAIN = (str, int, float, bool)


@dataclass
class Listing:
    """The images of one shard.

    Attributes:
        names: of the members that hold the images.
        offsets: of their bytes in the shard.
        sizes: in bytes.
        columns: values by name of column, one per image, None where missing: ``cls`` and ``txt`` members, and the keys of
            ``json`` members.
        skipped: number of members, or samples, by the reason for which they are left out.
        damage: where and why the shard cannot be read any further; None if it is complete.
    """

    names: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    damage: str | None = None


class _RangeFile:
    """A file for `tarfile` that reads chunks by range.

    Chunks double while headers are close together, so that many come with one request, and shrink when a large member is
    skipped. Headers above `MOST_HEADER` are refused, because they would fill the memory.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self.size = read, size
        self._position, self._start, self._chunk, self._next = 0, 0, b"", 2 * SMALLEST_CHUNK

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        self._position = position
        return position

    def read(self, count: int) -> bytes:
        if count > MOST_HEADER:
            raise tarfile.ReadError(f"a header of {count} bytes")
        start, end = self._position, min(self._position + count, self.size)
        if start >= end:
            return b""
        if not self._start <= start <= end <= self._start + len(self._chunk):
            if self._chunk:
                near = start - self._start - len(self._chunk) <= GAP
                self._next = min(2 * self._next, CHUNK) if near else SMALLEST_CHUNK
            self._start, self._chunk = start, self._read(start, min(max(end, start + self._next), self.size))
        self._position = end
        return self._chunk[start - self._start : end - self._start]


class _Member(NamedTuple):
    """A member of a sample; ``content`` if it may hold labels."""

    name: str
    extension: str
    offset: int
    size: int
    content: bytes | None


def list_tar(read: Callable[[int, int], bytes], size: int) -> Listing:
    """Lists the samples of a tar file: consecutive members whose names are equal up to the first dot of the file name.

    The first member of a sample with an extension of an image is its image. Nothing is extracted; links, devices, folders,
    and names that are absolute or contain ``..`` are skipped and counted.

    Args:
        read: returns the bytes ``start`` … ``end`` − 1 of the file.
        size: of the file in bytes.
    """
    listing = Listing()
    file = _RangeFile(read, size)
    seen: set[str] = set()
    stem: str | None = None
    sample: list[_Member] = []
    for member in _members(file, listing):
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
            if member.type != tarfile.DIRTYPE:
                listing.skipped["links, devices or sparse files"] += 1
            continue
        name = member.name
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            listing.skipped["members with a name that is absolute or contains .."] += 1
            continue
        folder, slash, last = name.rpartition("/")
        head, _, extension = last.partition(".")
        if folder + slash + head != stem:
            _add(sample, listing, seen)
            stem, sample = folder + slash + head, []
        content = None
        if (extension := extension.lower()) in LABELS and member.size <= MOST_LABEL:
            file.seek(member.offset_data)  # now, while it is in the chunk
            content = file.read(member.size)
        sample.append(_Member(name, extension, member.offset_data, member.size, content))
    _add(sample, listing, seen)
    return listing


def _members(file: _RangeFile, listing: Listing) -> Iterator[tarfile.TarInfo]:
    try:
        archive = tarfile.TarFile(fileobj=file, mode="r", errorlevel=0)  # type: ignore[arg-type]
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
            if member.size < 0 or member.offset_data + member.size > file.size:
                listing.damage = f"it ends inside {visible(member.name, 80)}"
                return
            yield member
        # tarfile takes a damaged header for the end.
        file.seek(archive.offset)
        if len(end := file.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE or end.strip(b"\0"):
            listing.damage = f"no valid header at byte {archive.offset}" if end else "it ends without its end marker"
    except (tarfile.TarError, ValueError, OverflowError, UnicodeError, IndexError, EOFError) as error:
        compressed = file.size > 2 and file._chunk[:2] in (b"\x1f\x8b", b"BZ", b"(\xb5", b"\xfd7")
        listing.damage = "it is compressed; unpack it to a plain .tar" if compressed else visible(error, 100)


def _add(sample: list[_Member], listing: Listing, seen: set[str]) -> None:
    if not sample:
        return
    images = [each for each in sample if "." + each.extension.rpartition(".")[2] in image_extensions()]
    if not images:
        listing.skipped["samples without an image"] += 1
        return
    listing.skipped["further images of a sample"] += len(images) - 1
    name, _, offset, size, _ = images[0]
    if name in seen:
        listing.skipped["samples with the name of an earlier one"] += 1
        return
    if size > MOST_IMAGE:
        listing.skipped[f"images above {MOST_IMAGE // 2**20} MiB"] += 1
        return
    seen.add(name)
    row = len(listing.names)
    listing.names.append(name)
    listing.offsets.append(offset)
    listing.sizes.append(size)
    for member in sample:
        if member.extension in LABELS:
            for column, value in _values(member, listing).items():
                if column not in listing.columns and len(listing.columns) >= MOST_KEYS:
                    listing.skipped[f"values of more than {MOST_KEYS} keys"] += 1
                    continue
                values = listing.columns.setdefault(column, [])
                values += [None] * (row - len(values))
                if len(values) == row:
                    values.append(value)
    for column_values in listing.columns.values():
        column_values.extend([None] * (row + 1 - len(column_values)))


def _values(member: _Member, listing: Listing) -> dict[str, Any]:
    extension, content = member.extension, member.content
    if content is None:
        listing.skipped[f".{extension} members above {MOST_LABEL // 1024} KiB"] += 1
        return {}
    try:
        if extension == "json":
            value = parse_json(content)
            found = value.items() if isinstance(value, dict) else [("json", value)]
            values = {str(name): each for name, each in found if isinstance(each, PLAIN)}
        else:
            values = {extension: content.decode("utf-8").strip()}
    except (ValueError, json.JSONDecodeError):
        listing.skipped[f".{extension} members that cannot be read"] += 1
        return {}
    kept = {name: each for name, each in values.items() if len(name) <= MOST_TEXT and len(str(each)) <= MOST_TEXT}
    if len(kept) < len(values):
        listing.skipped[f"values of more than {MOST_TEXT} characters"] += len(values) - len(kept)
    return kept
