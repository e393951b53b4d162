"""Lists the images of a tar file in the layout of WebDataset, by its headers alone."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coulomb.ground.reading import parse_json
from coulomb.kinds.image.decode import image_extensions
from coulomb.tables.shards.headers import FILE, FOLDER, OLD_FILE, Chunks, Damage, Member, members

LABELS = ("cls", "txt", "json")  # extensions
MOST_LABEL = 2**16  # bytes of a .cls, .txt or .json member
MOST_TEXT = 2**14  # characters of one value, which may be a caption
MOST_KEYS = 64  # columns from the keys of .json members
MOST_IMAGE = 2**29  # bytes

PLAIN = (str, int, float, bool)


@dataclass
class Listing:
    """The images of one shard.

    Attributes:
        names: names of the members that hold the images.
        offsets: offsets of their bytes in the shard.
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


class _Part(NamedTuple):
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
        size: size of the file in bytes.
    """
    listing = Listing()
    file = Chunks(read, size)
    seen: set[str] = set()
    stem: str | None = None
    sample: list[_Part] = []
    try:
        for member in members(file):
            if not _usable(member, listing):
                continue
            folder, slash, last = member.name.rpartition("/")
            head, _, extension = last.partition(".")
            if folder + slash + head != stem:
                _add(sample, listing, seen)
                stem, sample = folder + slash + head, []
            content = None
            if (extension := extension.lower()) in LABELS and member.size <= MOST_LABEL:
                content = file.read(member.offset, member.size)  # now, while it is in the chunk
            sample.append(_Part(member.name, extension, member.offset, member.size, content))
    except Damage as damage:
        listing.damage = str(damage)
    _add(sample, listing, seen)
    return listing


def _usable(member: Member, listing: Listing) -> bool:
    """Returns True for a file with a safe name; counts what else is skipped."""
    if member.kind not in (FILE, OLD_FILE) or member.sparse:
        if member.kind != FOLDER:
            listing.skipped["links, devices or sparse files"] += 1
        return False
    if member.name.startswith("/") or ".." in member.name.split("/") or "\0" in member.name:
        listing.skipped["members with a name that is absolute or contains .."] += 1
        return False
    return True


def _add(sample: list[_Part], listing: Listing, seen: set[str]) -> None:
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


def _values(member: _Part, listing: Listing) -> dict[str, Any]:
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
    except ValueError:
        listing.skipped[f".{extension} members that cannot be read"] += 1
        return {}
    kept = {name: each for name, each in values.items() if len(name) <= MOST_TEXT and len(str(each)) <= MOST_TEXT}
    if len(kept) < len(values):
        listing.skipped[f"values of more than {MOST_TEXT} characters"] += len(values) - len(kept)
    return kept
