"""A run on one column: figures by classes or scored pairs, geometry, nearest neighbors, and a map."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.evaluation.one_column_verdict import ONE_COLUMN_CONTESTANTS
from coulomb.ground.errors import InputError
from coulomb.ground.reading import Arrays, finite
from coulomb.report.cells import Cell, Previews, integers, read_arrays, read_previews
from coulomb.report.collect import RunData
from coulomb.report.gallery import Layout, Sheet
from coulomb.report.pages.numbers import significant
from coulomb.report.scored_pairs import OtherPairs, ScoredRow, number_at, other_pairs, scored_rows
from coulomb.report.scores import Score, Value, further_scores, scores

MAPS = ("tsne", "umap", "pca")
GEOMETRY = {
    "alignment": "alignment (squared distance of cells of equal meaning; 2 is chance)",
    "uniformity": "uniformity (lower: more evenly spread)",
    "effective_rank": "effective rank",
}
MAX_SHOWN = 5_000  # cells
MAX_QUERIES = 24
FOUND = 3  # neighbors that are shown of each


@dataclass(frozen=True)
class Neighbors:
    """A cell with its class, and its nearest cells: (cell, class, whether it has the class of the first)."""

    cell: Cell
    label: str
    found: list[tuple[Cell, str, bool]]


@dataclass(frozen=True)
class ColumnMap:
    """Positions of cells; ``marks`` holds (left, top, tooltip)."""

    layout: Layout
    marks: list[tuple[float, float, str]]


@dataclass(frozen=True)
class ColumnSection:
    """What the page shows of a run on one column.

    Attributes:
        name: of the column.
        judged_by: "labels", "scored pairs" or "nothing".
        names: contestant → its name, for those that were measured.
        rows: kNN, linear probe, few labels.
        further: retrieval and clustering.
        scored: correlations with scored pairs.
        geometry: (figure, its value of each contestant that has one).
        neighbors: some cells with their nearest.
        agreement: share of the neighbors that have the class of the cell; None without labels.
        sheet: the pictures; None if there are none.
        map: None without samples.
        tiles: the figure that the verdict is based on.
        others: results on other scored pairs.
    """

    name: str
    judged_by: str
    names: dict[str, str]
    rows: list[Score]
    further: list[Score]
    scored: list[ScoredRow]
    geometry: list[tuple[str, list[str]]]
    neighbors: list[Neighbors] = field(default_factory=list)
    agreement: float | None = None
    sheet: Sheet | None = None
    map: ColumnMap | None = None
    tiles: Score | None = None
    others: list[OtherPairs] = field(default_factory=list)


def column_section(run: RunData) -> ColumnSection | None:
    """Returns the section of a run on one column; None for other runs. ``run.problems`` receives what cannot be read."""
    if run.column is None:
        return None
    names = {key: name for key, name in ONE_COLUMN_CONTESTANTS.items() if isinstance(run.evaluation.get(key), dict)}
    protocol = run.evaluation.get("protocol")
    judged_by = protocol.get("judged_by") if isinstance(protocol, dict) else None
    stored = _read_samples(run.folder / "samples.npz", run.problems)
    neighbors, sheet, drawn = [], None, None
    described = run.evaluation.get("samples")
    described = described if isinstance(described, dict) else {}
    if stored is not None:
        cells = Previews(stored.rows, stored.places, stored.previews)
        neighbors = _neighbors(run, stored, cells, described)
        sheet, drawn = cells.sheet(), _map(stored, cells, described)
    return ColumnSection(
        run.column,
        judged_by if judged_by in ("labels", "scored pairs") else "nothing",
        names,
        scores(run.evaluation, names),
        further_scores(run.evaluation, names),
        scored_rows(run.evaluation, names),
        _geometry(run.evaluation, names),
        neighbors,
        finite(described.get("agreement")),
        sheet,
        drawn,
        _tiles(run.evaluation),
        other_pairs(run),
    )


@dataclass(frozen=True)
class _Samples:
    rows: np.ndarray
    places: np.ndarray
    labels: np.ndarray
    neighbors: np.ndarray
    maps: dict[str, np.ndarray]
    previews: dict[int, tuple[str | None, bytes | None]]


def _read_samples(path: Path, problems: list[str]) -> _Samples | None:
    return read_arrays(path, _samples, "neighbors and no map", problems)


def _samples(stored: Arrays) -> _Samples:
    rows = integers(stored, "rows_0")
    if len(rows) > MAX_SHOWN:
        raise InputError(f"rows_0 has {len(rows)} cells, more than {MAX_SHOWN}.")
    places, labels = integers(stored, "shown_0", len(rows)), integers(stored, "labels", len(rows), -1)
    neighbors = np.zeros((len(rows), 0), np.int64)
    if "neighbors" in stored:
        neighbors = stored["neighbors"].astype(np.int64)
        if neighbors.ndim != 2 or len(neighbors) != len(rows):
            raise InputError("neighbors has an unexpected structure.")
        if neighbors.size and not 0 <= neighbors.min() <= neighbors.max() < len(rows):
            raise InputError("neighbors names cells that are not there.")
    maps = {key: stored[f"map_{key}"].astype(float) for key in MAPS if f"map_{key}" in stored}
    maps = {
        key: each
        for key, each in maps.items()
        if each.shape == (len(rows), 2) and bool(((each >= 0) & (each <= 100)).all())
    }
    return _Samples(rows, places, labels, neighbors, maps, read_previews(stored, 0))


def _neighbors(run: RunData, stored: _Samples, cells: Previews, described: Mapping[str, Any]) -> list[Neighbors]:
    queries = described.get("queries")
    queries = [each for each in queries if type(each) is int] if isinstance(queries, list) else []
    shown = []
    for query in queries[:MAX_QUERIES]:
        if not 0 <= query < len(stored.rows) or not stored.neighbors.shape[1]:
            continue
        own = int(stored.labels[query])
        found = [
            (cells.cell(each), _class(run, int(stored.labels[each])), own >= 0 and int(stored.labels[each]) == own)
            for each in stored.neighbors[query, :FOUND].tolist()
        ]
        shown.append(Neighbors(cells.cell(query), _class(run, own), found))
    return shown


def _class(run: RunData, label: int) -> str:
    return "" if label < 0 else run.class_name(label)


def _map(stored: _Samples, cells: Previews, described: Mapping[str, Any]) -> ColumnMap | None:
    entries = described.get("maps")
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or entry.get("key") not in stored.maps:
            continue
        places = stored.maps[entry["key"]]
        layout = Layout(entry["key"], str(entry.get("name")), str(entry.get("caution")), places)
        marks = []
        for number, (left, top) in enumerate(places.tolist()):
            cell = cells.cell(number, picture=False)
            marks.append((left, top, cell.text or f"row {cell.row}"))
        return ColumnMap(layout, marks)
    return None


def _geometry(evaluation: Mapping[str, Any], names: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    rows = []
    for figure, label in GEOMETRY.items():
        values = [number_at(evaluation[key], "geometry", figure) for key in names]
        if any(value is not None for value in values):
            rows.append((label, ["–" if value is None else significant(value) for value in values]))
    return rows


def _tiles(evaluation: Mapping[str, Any]) -> Score | None:
    """The figures of the verdict, of contestants that are measured in the same way as the trained encoder."""
    comparison = evaluation.get("comparison")
    values: dict[str, Value] = {}
    of: list[Any] = []
    for entry in comparison if isinstance(comparison, list) else []:
        overall = entry.get("overall") if isinstance(entry, dict) else None
        if not isinstance(overall, dict):
            continue
        of = of or [overall.get("of")]
        name = {"untrained": "random_init"}.get(str(entry.get("against")), str(entry.get("against")))
        means = {"trained": finite(overall.get("trained")), name: finite(overall.get("baseline"))}
        if [overall.get("of")] == of and name in ONE_COLUMN_CONTESTANTS:
            values |= {key: Value(mean) for key, mean in means.items() if mean is not None}
    return Score("overall", "overall", values) if values and of != [["spearman"]] else None
