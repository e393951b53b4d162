"""Lists of the user's decisions as CSV: with ``id`` and ``path`` or ``text``, as all lists of coulomb."""

import csv
import io
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading.cells import to_cell
from coulomb_browse.session import Session

EXPORTS = {
    "files": ("decision",),  # keep or drop
    "corrections": ("label", "given"),
    "labels": ("label",),
    "predictions": ("label", "probability", "unsure"),
}


def export_csv(session: Session, name: str) -> bytes:
    """Returns one list as CSV.

    | name | columns besides ``id`` and ``path`` | rows |
    |---|---|---|
    | files | decision: keep or drop | of groups of duplicates |
    | corrections | label, given | images whose label was checked: the right label, and the label in the index |
    | labels | label | images that the user labeled |
    | predictions | label, probability, unsure | the other images, as last classified |

    ``path`` is the path in the index's table, relative to its root, so that ``coulomb train LIST.csv --root FOLDER`` reads it.
    Of an index of texts, ``text`` is in its place: the first 200 characters.
    Text that a spreadsheet would run as a formula begins with an apostrophe, see `coulomb.ground.reading.cells`.

    Raises:
        InputError: there is no such list.
    """
    if name not in EXPORTS:
        raise InputError(f"export={name[:20]!r}: is not one of {', '.join(EXPORTS)}")
    shown = "text" if session.index.kind == "text" else "path"
    cells = session.index.table.column(shown)
    rows = session.predictions if name == "predictions" else _decided(session, name)
    rows = [[session.index.ids[position], cells[position].as_py() or "", *values] for position, *values in rows]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([["id", shown, *EXPORTS[name]], *(map(to_cell, row) for row in rows)])
    return text.getvalue().encode("utf-8", "backslashreplace")


def _decided(session: Session, name: str) -> list[list[Any]]:
    kind = {"files": "file", "corrections": "correction", "labels": "label"}[name]
    decided = session.decisions()["decided"][kind]
    given = session.index.labels
    return [[at, decided[at], *([given[at] or ""] if name == "corrections" else [])] for at in sorted(decided)]
