"""Pairs of texts or vectors with a score of how similar they are, such as semantic textual similarity."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import first_few, visible
from coulomb.tables.columns import Column
from coulomb.tables.recognize import Asked, Recognized, recognize
from coulomb.tables.sheet import Sheet
from coulomb.tables.sources import open_sheet
from coulomb.tables.table import Columns
from coulomb.tables.texts import Texts

SCORES = ("score", "scores", "similarity", "similarity_score", "relatedness_score")
CELLS = 3  # of a row in memory: two texts and their score


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of cells with scores.

    Attributes:
        table: a table of the trained column alone, whose rows are the first cells of all pairs, then the second ones.
        scores: how similar each pair is, in any unit, float64 [n].
        names: the two columns of cells and the column of scores.
    """

    table: Columns
    scores: npt.NDArray[np.float64]
    names: tuple[str, str, str]

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows in ``table`` of the first and the second cells, [n] each."""
        return np.arange(len(self)), np.arange(len(self), 2 * len(self))


def open_scored_pairs(data: Any, column: Column, kind: str, *, root: str | Path | None = None) -> ScoredPairs | None:
    """Opens scored pairs: a table with a column of scores and two columns of cells.

    The column of scores is called ``score``, ``similarity``, or another name of ``SCORES``; the columns of cells may have any
    names. Pairs in memory may be tuples (first, second, score). Pairs without both cells and a score are left out and counted.

    Args:
        data: see `coulomb.tables.columns.open_columns`.
        column: the column that is trained, whose name the cells get.
        kind: its kind.
        root: see `coulomb.tables.columns.open_columns`.

    Returns:
        The pairs; None if the table has no column of scores, or has ``column`` and not two columns of its kind: its rows are
        then ordinary ones.

    Raises:
        InputError: the data cannot be opened, there are not two columns of this kind, no scores, or fewer than 3 pairs.
    """
    rows = isinstance(data, list | tuple) and data and all(isinstance(row, list | tuple) for row in data)
    triples = rows and all(len(row) == CELLS for row in data)
    sheet = open_sheet(data, ["first", "second", "score"] if triples else [column.name])
    if root is not None:
        sheet.root = Path(root).expanduser()
    score = next((name for name in sheet.names if name.lower() in SCORES), None)
    if score is None:
        return None
    found = {name: each for name in sheet.names if name != score and (each := _recognized(sheet, name, kind))}
    if len(found) != 2:
        if column.name in sheet.names:
            return None
        raise InputError(
            f"{visible(sheet.name)}: scored pairs need two columns of {kind}s beside {visible(score)!r}; it has "
            f"{first_few(list(found)) or 'none'}"
        )
    if kind == "image":
        raise InputError(f"{visible(sheet.name)}: scored pairs are of texts or vectors; give labeled images instead")
    first, second = found
    scores, complete = _scores(sheet, score), np.ones(sheet.length, dtype=bool)
    for each in found.values():
        if each.row is not None:
            raise InputError(f"{visible(sheet.name)}: its cells are lists of texts; give one pair per row")
        complete &= each.at >= 0
    complete &= np.isfinite(scores)
    if (pairs := int(complete.sum())) < CELLS:
        raise InputError(f"{visible(sheet.name)}: {counted(pairs, 'scored pair')}; a correlation needs at least 3")
    notes = sheet.notes
    if left := sheet.length - pairs:
        notes = (*notes, f"{visible(sheet.name)}: {counted(left, 'pair')} without both cells and a score left out.")
    kept = np.flatnonzero(complete)
    cells = _together([each.take(kept) for each in found.values()])
    ids = [f"{row}.{side}" for side in (first, second) for row in kept.tolist()]
    table = Columns(
        {column.name: cells}, ids=ids, name=sheet.name, kinds={column.name: kind}, kind="scored pairs", notes=notes
    )
    return ScoredPairs(table, scores[kept], (first, second, score))


def _recognized(sheet: Sheet, name: str, kind: str) -> Recognized | None:
    """Returns a column if it is of this kind, else None."""
    try:
        found = recognize(sheet.read(name), Asked(name, None, sheet.name, sheet.root, sheet.class_names.get(name)))
    except InputError:
        return None
    return found if found.kind == kind else None


def _scores(sheet: Sheet, name: str) -> npt.NDArray[np.float64]:
    values = sheet.plain(name)
    try:
        return np.array([np.nan if value in (None, "") else float(value) for value in values or [None]], np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{visible(sheet.name)}, column {visible(name)!r}: its scores are not all numbers") from None


def _together(parts: list[Any]) -> Any:
    if isinstance(parts[0], Texts):
        import pyarrow as pa

        return Texts(pa.chunked_array([each.array for each in parts]))
    if parts[0].shape[1] != parts[1].shape[1]:
        raise InputError(
            f"scored pairs of vectors with {parts[0].shape[1]} and {parts[1].shape[1]} values: must be equal"
        )
    return np.concatenate(parts)
