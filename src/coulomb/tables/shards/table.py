"""Tables of offsets: where the images of a shard are, made once and saved in a file per shard."""

import contextlib
import hashlib
import io
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.reading import Shape, check_shape, maybe, open_arrays, parse_json, text, whole
from coulomb.tables.shards.cache import cache_folder
from coulomb.tables.shards.remote import Stamp, scheme
from coulomb.tables.shards.tar import PLAIN, Listing

FORMAT = 3  # 1 may be short, because errors of reading counted as damage; 2 lacks texts of more than 1000 characters
FOLDER = ".coulomb"  # beside local shards, if it can be written


class Column(NamedTuple):
    """Values of a column with few distinct ones: ``values[codes]``, the code −1 for a missing value."""

    codes: np.ndarray  # int32 [n]
    values: list[Any]


class ShardTable(NamedTuple):
    """The images of one shard: name, place and columns; what was skipped by reason; damage, if any."""

    names: np.ndarray  # uint8: names, each followed by a zero byte
    offsets: np.ndarray  # int64 [n]
    sizes: np.ndarray  # int64 [n]
    columns: dict[str, Column]
    skipped: dict[str, int]
    damage: str | None

    def __len__(self) -> int:
        return len(self.offsets)


def _plain(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, PLAIN) for each in value)


META = {
    "columns": Shape("lists", lambda value: isinstance(value, dict) and all(map(_plain, value.values()))),
    "skipped": Shape("counts", lambda value: isinstance(value, dict) and all(map(whole.fits, value.values()))),
    "damage": maybe(text),
}


def make_table(listing: Listing) -> ShardTable:
    """Returns the table of a listing."""
    names = b"".join(name.encode("utf-8", "backslashreplace") + b"\0" for name in listing.names)
    columns = {}
    for column, values in listing.columns.items():
        numbers: dict[tuple[type, Any], int] = {}
        codes = [-1 if v is None else numbers.setdefault((type(v), v), len(numbers)) for v in values]
        columns[column] = Column(np.array(codes, dtype=np.int32), [value for _, value in numbers])
    return ShardTable(
        np.frombuffer(names, np.uint8),
        np.array(listing.offsets, dtype=np.int64),
        np.array(listing.sizes, dtype=np.int64),
        columns,
        {reason: count for reason, count in listing.skipped.items() if count},
        listing.damage,
    )


def find_table(address: str, stamp: Stamp, make: Callable[[], ShardTable]) -> ShardTable:
    """Returns the saved table of a shard if it belongs to this version of the shard, else makes and saves it."""
    places = table_files(address)
    for place in places:
        if (table := load_table(place, stamp)) is not None:
            return table
    table = make()
    if not len(table):
        return table  # nothing to save, and the file may be anything
    content = _packed(table, stamp)
    for place in places:
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.unfinished")
            try:
                unfinished.write_bytes(content)
                unfinished.replace(place)
            finally:
                unfinished.unlink(missing_ok=True)
            return table
    raise InputError(
        f"{places[-1].parent}: the table of {address} cannot be written; set COULOMB_CACHE to a folder with free space"
    )


def table_files(address: str) -> list[Path]:
    """Returns where the table of a shard may be: in ``.coulomb`` beside a local shard, and in the folder of the cache."""
    digest = hashlib.blake2b(
        (address if scheme(address) else os.path.realpath(address)).encode("utf-8", "surrogateescape"), digest_size=16
    ).hexdigest()
    files = [cache_folder() / "tables" / f"{digest}.npz"]
    if scheme(address) is None:
        files.insert(0, Path(address).parent / FOLDER / f"{Path(address).name}.npz")
    return files


def load_table(path: Path, stamp: Stamp) -> ShardTable | None:
    """Returns a saved table; None if there is none, if it is of another version of the shard, or damaged.

    The file may have been written by anybody: all its numbers must lie inside the shard.
    """
    if not path.is_file():
        return None
    try:
        with open_arrays(path) as arrays:
            meta = check_shape(path, parse_json(arrays["meta"].tobytes()), META)
            if [meta["format"], *meta["stamp"]] != [FORMAT, *stamp]:
                return None
            names, numbers = arrays["names"], arrays["numbers"]
    except (ValueError, KeyError, TypeError):
        return None
    columns = meta["columns"]
    if (names.dtype, names.ndim, numbers.dtype, numbers.ndim) != (np.uint8, 1, np.int64, 2):
        return None
    if len(numbers) != 2 + len(columns) or (names == 0).sum() != numbers.shape[1] or names[-1:].any():
        return None
    offsets, sizes, codes = numbers[0], numbers[1], numbers[2:].astype(np.int32)
    inside = (offsets >= 0) & (sizes >= 0) & (sizes <= stamp.size) & (offsets <= stamp.size - sizes)
    inside[1:] &= np.diff(offsets) >= 0
    known = [Column(row, values) for row, values in zip(codes, columns.values(), strict=True)]
    if not inside.all() or any(((one.codes < -1) | (one.codes >= len(one.values))).any() for one in known):
        return None
    return ShardTable(names, offsets, sizes, dict(zip(columns, known, strict=True)), meta["skipped"], meta["damage"])


def _packed(table: ShardTable, stamp: Stamp) -> bytes:
    meta = {
        "format": FORMAT,
        "stamp": list(stamp),
        "columns": {name: column.values for name, column in table.columns.items()},
        "skipped": table.skipped,
        "damage": table.damage,
    }
    numbers = np.stack(
        [table.offsets, table.sizes, *(column.codes.astype(np.int64) for column in table.columns.values())]
    )
    buffer = io.BytesIO()
    encoded = json.dumps(meta, ensure_ascii=True).encode()
    np.savez(buffer, meta=np.frombuffer(encoded, np.uint8), names=table.names, numbers=numbers)
    return buffer.getvalue()
