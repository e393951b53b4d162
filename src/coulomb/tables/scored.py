"""Pairs of texts or vectors with a score of how similar they are, such as semantic textual similarity."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.ground.text import first_few, visible
from coulomb.tables.recognize import Asked, Recognized, recognize
from coulomb.tables.sheet import Sheet
from coulomb.tables.sources import open_sheet
from coulomb.tables.table import Columns
from coulomb.tables.texts import Texts

SCORES = ("score", "scores", "similarity", "similarity_score", "relatedness_score")
USUAL = (("sentence1", "sentence2"), ("sentence_a", "sentence_b"), ("text1", "text2"), ("text_a", "text_b"))
CELLS = 3  # of a row in memory: two texts and their score


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of cells with scores.

    Attributes:
        table: a table of the trained column alone, whose rows are the first cells of all pairs, then the second ones.
        scores: how similar each pair is, in any unit, float64 [n].
        names: the two columns of cells and the column of scores.
        left_out: pairs without both cells and a score.
    """

    table: Columns
    scores: npt.NDArray[np.float64]
    names: tuple[str, str, str]
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows in ``table`` of the first and the second cells, [n] each."""
        return np.arange(len(self)), np.arange(len(self), 2 * len(self))


def open_scored_pairs(
    data: Any, column: str, kind: str, *, names: Sequence[str] = (), root: str | Path | None = None
) -> ScoredPairs | None:
    """Opens scored pairs: a table with a column of scores and two columns of cells.

    The column of scores is called ``score``, ``similarity``, or another name of ``SCORES``. The columns of cells may have any
    names if there are two of the kind; of more, two with names of ``USUAL`` are taken, such as ``sentence1`` and
    ``sentence2``. Pairs in memory may be tuples (first, second, score). Pairs without both cells and a score are left out and
    counted.

    Args:
        data: see `coulomb.tables.columns.open_columns`.
        column: the column of the run, whose name the cells get.
        kind: its kind.
        names: the first column of cells, the second one and the column of scores; default: as above.
        root: see `coulomb.tables.columns.open_columns`.

    Returns:
        The pairs; None if no ``names`` are given and the table has no column of scores, or has ``column`` and not two columns
        of its kind: its rows are then ordinary ones.

    Raises:
        InputError: the data cannot be opened, there are not two columns of this kind, scores are not numbers or all equal, or
            there are fewer than 3 pairs.
    """
    rows = isinstance(data, list | tuple) and data and all(isinstance(row, list | tuple) for row in data)
    triples = rows and all(len(row) == CELLS for row in data)
    sheet = open_sheet(data, ["first", "second", "score"] if triples else [column])
    if root is not None:
        sheet.root = Path(root).expanduser()
    for name in names:
        if name not in sheet.names:
            raise InputError(
                f"columns={','.join(map(visible, names))}: {visible(sheet.name)} has no column {visible(name)!r}; there are "
                f"{first_few(sheet.names, 12)}{did_you_mean(name, sheet.names)}"
            )
    score = names[2] if names else next((name for name in sheet.names if name.lower() in SCORES), None)
    if score is None:
        return None
    others = names[:2] or [name for name in sheet.names if name != score]
    found = _two({name: each for name in others if (each := _recognized(sheet, name, kind))})
    if len(found) != 2:
        if column in sheet.names and not names:
            return None
        remedy = f"; name the two: call them {' and '.join(USUAL[0])}" if len(found) > 2 else ""
        raise InputError(
            f"{visible(sheet.name)}: scored pairs need two columns of {kind}s beside {visible(score)!r}; it has "
            f"{first_few(list(found)) or 'none'}{remedy}"
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
    if np.ptp(scores[complete]) == 0:
        raise InputError(
            f"{visible(sheet.name)}, column {visible(score)!r}: all scores are {scores[complete][0]:g}, so that nothing "
            "correlates with them; give pairs with different scores"
        )
    notes = sheet.notes
    if left := sheet.length - pairs:
        notes = (*notes, f"{visible(sheet.name)}: {counted(left, 'pair')} without both cells and a score left out.")
    kept = np.flatnonzero(complete)
    cells = _together([each.take(kept) for each in found.values()])
    ids = [f"{row}.{side}" for side in (first, second) for row in kept.tolist()]
    table = Columns({column: cells}, ids=ids, name=sheet.name, kinds={column: kind}, kind="scored pairs", notes=notes)
    return ScoredPairs(table, scores[kept], (first, second, score), left)


def _two(found: dict[str, Recognized]) -> dict[str, Recognized]:
    """Returns the two columns with usual names if there are more than two."""
    named = {name.lower(): name for name in found}
    usual = next((pair for pair in USUAL if len(found) > 2 and all(name in named for name in pair)), None)
    return found if usual is None else {named[name]: found[named[name]] for name in usual}


def _recognized(sheet: Sheet, name: str, kind: str) -> Recognized | None:
    """Returns a column if it is of this kind, else None."""
    try:
        found = recognize(sheet.read(name), Asked(name, None, sheet.name, sheet.root, sheet.class_names.get(name)))
    except InputError:
        return None
    return found if found.kind == kind else None


def _scores(sheet: Sheet, name: str) -> npt.NDArray[np.float64]:
    """Returns the scores of the rows, NaN where one is missing."""
    where, scores = f"{visible(sheet.name)}, column {visible(name)!r}", np.full(sheet.length, np.nan)
    if (values := sheet.plain(name)) is None:
        raise InputError(f"{where}: holds no numbers; name the column of scores")
    for row, value in enumerate(values):
        try:
            if value not in (None, ""):
                scores[row] = float(value)
        except (TypeError, ValueError):
            raise InputError(f"{where}, row {row}: {visible(value, 40)!r} is no number; scores are numbers") from None
    return scores


def _together(parts: list[Any]) -> Any:
    if isinstance(parts[0], Texts):
        import pyarrow as pa

        return Texts(pa.chunked_array([each.array for each in parts]))
    if parts[0].shape[1] != parts[1].shape[1]:
        raise InputError(
            f"scored pairs of vectors with {parts[0].shape[1]} and {parts[1].shape[1]} values: must be equal"
        )
    return np.concatenate(parts)
