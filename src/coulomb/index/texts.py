"""Texts of an index: the column that is indexed, and what its table holds of each text."""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import first_few
from coulomb.index.table import label_names
from coulomb.tables.columns import Column, open_columns, parse_columns
from coulomb.tables.table import Columns

PREVIEW = 200  # characters of a text that the table holds


class TextFacts(NamedTuple):
    """What the table of an index says about one text.

    Attributes:
        bytes: of the text in UTF-8.
        sha256: of the text in UTF-8.
        characters: their number.
        cut: whether the text has more tokens than the encoder takes.
        text: the first 200 characters; "…" is the last of them if there are more.
    """

    bytes: int
    sha256: str
    characters: int
    cut: bool
    text: str


def plain(text: str) -> str:
    """Returns a text after Unicode normalization (NFC), without white space at both ends: what is indexed and compared."""
    return unicodedata.normalize("NFC", text).strip()


def digest(text: str) -> str:
    """Returns the SHA-256 of a plain text."""
    return hashlib.sha256(text.encode()).hexdigest()


def describe_text(text: str, cut: bool = False) -> TextFacts:
    """Returns the facts of a plain text."""
    shown = text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"
    return TextFacts(len(text.encode()), digest(text), len(text), cut, shown)


def text_schema() -> Any:
    """Returns the columns of ``texts.parquet``: ``id``, the number of the row in the data; ``label``; and `TextFacts`."""
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            ("text", pa.string()),
            ("label", pa.string()),
            ("bytes", pa.int64()),
            ("sha256", pa.string()),
            ("characters", pa.int64()),
            ("cut", pa.bool_()),
        ]
    )


def make_text_table(source: "TextSource", indices: Iterable[int], facts: Iterable[TextFacts]) -> Any:
    """Returns the table of the texts of ``source`` at ``indices``."""
    import pyarrow as pa

    indices, facts = list(indices), list(facts)
    columns: dict[str, Any] = {
        "id": [source.item_id(index) for index in indices],
        "label": label_names(source, indices),
        **{name: [getattr(each, name) for each in facts] for name in TextFacts._fields},
    }
    kinds = text_schema()
    return pa.table([pa.array(columns[field.name], field.type) for field in kinds], schema=kinds)


class TextSource:
    """The texts of one column of a table.

    Args:
        table: opened by `coulomb.tables.columns.open_columns`.
        column: a column of texts.
    """

    root: Path | None = None  # texts are not files

    def __init__(self, table: Columns, column: str) -> None:
        self.table, self.column = table, column
        self.name, self.kind, self.notes = table.name, table.kind, table.notes
        self.labels, self.class_names = table.labels, table.class_names
        self.texts: Sequence[str] = table.columns[column]

    def __len__(self) -> int:
        return len(self.texts)

    def item_id(self, index: int) -> str:
        """Returns the number of the row in the data."""
        return self.table.item_id(index)

    def stamps(self) -> None:
        """Texts have no times of their own: an update compares them by their hash."""

    def plain(self, indices: Sequence[int]) -> list[str]:
        """Returns texts as they are indexed, see `plain`."""
        return [plain(self.texts[index]) for index in indices]

    def digests(self, indices: Sequence[int]) -> list[str]:
        """Returns the SHA-256 of texts as they are indexed."""
        return [digest(text) for text in self.plain(indices)]


def open_texts(data: Any, columns: str | Column | Sequence[str | Column], labels: Any) -> TextSource:
    """Opens the column of texts that an index is built of.

    Args:
        data, labels: see `coulomb.tables.columns.open_columns`.
        columns: the name of one column.

    Raises:
        InputError: several columns, or one that does not hold texts; or ``data`` cannot be opened.
    """
    asked = parse_columns(columns)
    names = first_few([each.name for each in asked])
    if len(asked) > 1:
        raise InputError(f"columns={names}: an index has one column; build an index for each")
    table = open_columns(data, asked, labels=labels)
    kind = table.kinds[asked[0].name]
    if kind != "text":
        remedy = "leave out columns" if kind == "image" else "choose a column of texts"
        raise InputError(f"columns={names}: holds {kind}s, and an index of a column is one of texts; {remedy}")
    return TextSource(table, asked[0].name)


def cut_note(cut: int, count: int, longest: int) -> list[str]:
    """Returns a sentence about texts that are longer than the encoder takes; none if there are none."""
    if not cut:
        return []
    were = "has" if cut == 1 else "have"
    return [f"{counted(cut, 'text')} of {count:,} {were} more than {longest} tokens; the rest of each is not indexed."]
