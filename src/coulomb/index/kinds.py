"""What an index holds, images or texts: its files, what is known about a cell, and what answers show of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading import Shape, maybe, text, whole
from coulomb.ground.text import visible
from coulomb.index.table import Photo, make_table, schema
from coulomb.index.texts import TextFacts, make_text_table, text_schema

sha256 = Shape("a SHA-256", lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None)
_nanoseconds = Shape("nanoseconds as text", lambda value: isinstance(value, str) and value.lstrip("-").isdecimal())
_truth = Shape("true or false", lambda value: isinstance(value, bool))
_table = Shape("an object", lambda value: isinstance(value, dict))


@dataclass(frozen=True)
class IndexKind:
    """A kind of cells that an index can hold.

    Attributes:
        name: "image" or "text", the kind of the column.
        plural: "images" or "texts": in messages, and the name of their number in ``index.json``.
        shown: the column of the table by which answers show a cell: its path, or the text.
        files: names of the files of a generation: features, table, and of images thumbnails and their places.
        lines: name of the file of unfinished work with a line per cell.
        facts: what is known about a cell, the fields of such a line.
        line: shapes of these fields.
        encoder: shapes of the entry ``encoder`` of ``index.json``.
        more: shapes of entries of ``index.json`` that other kinds do not have.
        schema: returns the columns of the table.
        table: ``table(source, indices, facts)`` returns the table.
    """

    name: str
    plural: str
    shown: str
    files: tuple[str, ...]
    lines: str
    facts: type[Any]
    line: dict[str, Shape]
    encoder: dict[str, Shape]
    more: dict[str, Shape]
    schema: Callable[[], Any]
    table: Callable[..., Any]


IMAGES = IndexKind(
    name="image",
    plural="images",
    shown="path",
    files=("features.npy", "images.parquet", "thumbnails.jpgs", "thumbnails.npy"),
    lines="photos.jsonl",
    facts=Photo,
    line={"sha256": sha256, "mtime": maybe(_nanoseconds), "bytes": whole, "width": whole, "height": whole},
    encoder={"name": text, "fingerprint": text, "image_size": whole, "canvas": maybe(_table)},
    more={"images": whole, "thumbnail": whole},
    schema=schema,
    table=make_table,
)
TEXTS = IndexKind(
    name="text",
    plural="texts",
    shown="text",
    files=("features.npy", "texts.parquet"),
    lines="texts.jsonl",
    facts=TextFacts,
    line={"sha256": sha256, "text": text, "characters": whole, "bytes": whole, "cut": _truth},
    encoder={"name": text, "fingerprint": text, "longest": whole},
    more={"texts": whole, "cut": whole},
    schema=text_schema,
    table=make_text_table,
)
KINDS = {kind.name: kind for kind in (IMAGES, TEXTS)}
COLUMN = {"name": text, "kind": Shape(" or ".join(KINDS), lambda value: value in KINDS)}


def kind_of(info: dict[str, Any]) -> IndexKind:
    """Returns what an index holds, by the content of its ``index.json``: images, unless an entry ``column`` says otherwise."""
    return KINDS[info["column"]["kind"]] if "column" in info else IMAGES


def require_images(info: dict[str, Any], path: Any, what: str) -> None:
    """Raises `InputError` unless an index holds images; ``what``: the command or argument that needs them."""
    if kind_of(info) is not IMAGES:
        raise InputError(f"{visible(path)}: is an index of texts, and {what} is for images only")
