"""A run on two columns: recall curves by direction, figures, worst misses with their answers, and one map of both towers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.evaluation.comparison import CONTESTANTS
from coulomb.evaluation.pair_verdict import CHANCE, PAIR_CONTESTANTS
from coulomb.ground.errors import InputError
from coulomb.ground.reading import Arrays, finite
from coulomb.metrics.matching import DIRECTIONS
from coulomb.report.cells import Cell, Preview, Previews, integers, read_arrays, read_previews
from coulomb.report.collect import RunData
from coulomb.report.gallery import Layout, Sheet
from coulomb.report.pages.chart import Chart, Series, line_chart
from coulomb.report.pages.numbers import count, percent, plural, shorten, significant, trim_zeros
from coulomb.report.scored_pairs import OtherPairs, of_scored_pairs, other_pairs
from coulomb.report.scores import Score, Value, scores

FIGURES = {
    "recall_at 1": "R@1",
    "recall_at 5": "R@5",
    "recall_at 10": "R@10",
    "mrr": "MRR",
    "median_rank": "median rank",
}
MAPS = ("tsne", "umap", "pca")
MAX_SHOWN = 100  # queries per direction
MAX_MAPPED = 5_000


@dataclass(frozen=True)
class Shown:
    """A query with its answer and the keys that were found first.

    ``found`` holds (cell, cosine, whether it is right).
    """

    query: Cell
    answer: Cell
    rank: int
    cosine: float
    found: list[tuple[Cell, float, bool]]


@dataclass(frozen=True)
class Direction:
    """Queries of one column among the cells of the other; ``start`` and ``end`` number the columns."""

    start: int
    end: int
    title: str
    keys: int
    curve: Chart | None
    worst: list[Shown]
    others: list[Shown]


@dataclass(frozen=True)
class PairMap:
    """Positions of the cells of both columns on one map; ``marks`` holds (left, top, column, tooltip)."""

    layout: Layout
    marks: list[tuple[float, float, int, str]]


@dataclass(frozen=True)
class Transfer:
    """Results on other labeled images, ``transfer/NAME.json``.

    Attributes:
        name: of the data.
        words: (figure, zero-shot by the words of the classes, chance); empty for a run without texts.
        prompts: with which the classes were named.
        names: contestant → its name, of those that learn from labels.
        rows: kNN, linear probe and few labels of the image tower.
    """

    name: str
    words: list[tuple[str, str, str]]
    prompts: list[str]
    names: dict[str, str]
    rows: list[Score]


@dataclass(frozen=True)
class PairSection:
    """What the page shows of a run on two columns.

    Attributes:
        columns: the names of both columns.
        names: contestant → its name, for those that were measured.
        table: (heading, rows) by direction; a row is (label, cells), a cell (text, interval, whether it is the best).
        directions: curves and queries of both directions; without curves and queries if there are no samples.
        sheets: the pictures of each column; None for a column that has none.
        map: the first map; None without samples.
        geometry: (name, value) of figures of the embeddings.
        towers: (column, accuracies of the trained and the untouched tower by kNN).
        tiles: MRR, the figure of the verdict.
        protocol: a sentence about queries and clusters.
        transfers: results on other labeled images.
        others: results on other scored pairs.
    """

    columns: tuple[str, str]
    names: dict[str, str]
    table: list[tuple[str, list[tuple[str, list[tuple[str, str, bool]]]]]]
    directions: list[Direction]
    sheets: tuple[Sheet | None, Sheet | None] = (None, None)
    map: PairMap | None = None
    geometry: list[tuple[str, str]] = field(default_factory=list)
    towers: list[tuple[str, str, str]] = field(default_factory=list)
    tiles: Score | None = None
    protocol: str = ""
    transfers: list[Transfer] = field(default_factory=list)
    others: list[OtherPairs] = field(default_factory=list)


def pair_section(run: RunData) -> PairSection | None:
    """Returns the section of a run on two columns; None for other runs. ``run.problems`` receives what cannot be read."""
    if not run.columns:
        return None
    first, second = run.columns
    names = {key: name for key, name in PAIR_CONTESTANTS.items() if isinstance(run.evaluation.get(key), dict)}
    stored = read_pair_samples(run.folder / "samples.npz", run.problems)
    sheets: list[Sheet | None] = [None, None]
    directions, drawn = [], None
    titles = f"{first} → {second}", f"{second} → {first}"
    if stored is not None:
        cells = [Previews(stored.rows[side], stored.places[side], stored.previews[side]) for side in (0, 1)]
        for side, title in enumerate(titles):
            curve = recall_chart(title, stored, side, names)
            worst, others = _queries(stored, side, cells[side], cells[1 - side])
            directions.append(Direction(side, 1 - side, title, len(stored.rows[1 - side]), curve, worst, others))
        sheets = [each.sheet() for each in cells]
        drawn = _map(run, stored, cells)
    return PairSection(
        (first, second),
        names,
        [(title, _rows(run.evaluation, direction, names)) for title, direction in zip(titles, DIRECTIONS, strict=True)],
        directions,
        (sheets[0], sheets[1]),
        drawn,
        _geometry(run.evaluation.get("geometry"), (first, second)),
        _towers(run.evaluation.get("towers")),
        _tiles(run.evaluation, names),
        _protocol(run.evaluation.get("protocol"), (first, second)),
        [each for result in run.transfers if not of_scored_pairs(result) and (each := transfer(result)) is not None],
        other_pairs(run),
    )


def transfer(result: Mapping[str, Any]) -> Transfer | None:
    """Returns what the page shows of the results on other data; None if they have an unexpected structure."""
    protocol = result.get("protocol")
    if not isinstance(protocol, dict):
        return None
    found, words = result.get("zero_shot"), []
    classes = found.get("classes") if isinstance(found, dict) else None
    for k in ("1", "5"):
        values = [_figure(found, path) for path in (f"top {k}", f"chance top {k}")]
        if values[0] is not None and isinstance(classes, list) and int(k) < len(classes):
            words.append((f"top-{k}", percent(values[0]), percent(values[1])))
    if (balanced := _figure(found, "balanced_accuracy")) is not None:
        words.append(("balanced accuracy", percent(balanced), percent(_figure(found, "chance balanced_accuracy"))))
    asked = found.get("protocol") if isinstance(found, dict) else None
    prompts = asked.get("prompts") if isinstance(asked, dict) else None
    names = {key: name for key, name in CONTESTANTS.items() if isinstance(result.get(key), dict)}
    return Transfer(
        str(protocol.get("name", "other data")),
        words,
        [str(each) for each in prompts] if isinstance(prompts, list) else [],
        names,
        scores(dict(result)),
    )


def pictured(run: RunData) -> str:
    """Returns a sentence about the views that training sees of pictures; '' for a run without a column of pictures."""
    kinds = run.data.get("columns")
    names = [name for name, kind in kinds.items() if kind == "image"] if isinstance(kinds, dict) else []
    if not names:
        return ""
    views, tune = finite(run.config.get("cached_views")), str(run.config.get("tune"))
    if f"{names[0]}=none" in tune or tune == "none":
        if views is None or views < 2:
            return "The features of each picture were computed once, as it is."
        return f"The features of each picture were computed once: as it is, and of {plural(round(views) - 1, 'random view')}."
    shown = finite(run.config.get("n_views"))
    if shown is not None and shown > 1:
        return f"Each epoch shows the network {round(shown)} new random views of each picture, which belong together."
    return "Each epoch shows the network a new random view of each picture."


@dataclass(frozen=True)
class PairSamples:
    """The arrays of ``samples.npz`` of a run on two columns, see `coulomb.evaluation.pairs.assess_pairs`.

    ``previews`` has for each column the place of each preview among the held-out rows → (text, JPEG bytes), one of both None.
    """

    rows: tuple[np.ndarray, np.ndarray]
    places: tuple[np.ndarray, np.ndarray]
    ranks: dict[str, tuple[np.ndarray, np.ndarray]]
    shown: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
    chance: tuple[list[tuple[float, float]], list[tuple[float, float]]]
    mapped: tuple[np.ndarray, np.ndarray]
    maps: dict[str, np.ndarray]
    previews: tuple[dict[int, Preview], dict[int, Preview]]


def read_pair_samples(path: Path, problems: list[str]) -> PairSamples | None:
    """Reads and checks the samples of a run on two columns; ``problems`` receives a sentence if that fails."""
    return read_arrays(path, _samples, "curves, no queries and no map", problems)


def _samples(stored: Arrays) -> PairSamples:
    rows = integers(stored, "rows_0"), integers(stored, "rows_1")
    sizes = len(rows[0]), len(rows[1])
    places = integers(stored, "place_0", sizes[0]), integers(stored, "place_1", sizes[1])
    ranks = {
        name: (
            integers(stored, f"ranks_{name}_0", sizes[0], 1, sizes[1]),
            integers(stored, f"ranks_{name}_1", sizes[1], 1, sizes[0]),
        )
        for name in PAIR_CONTESTANTS
        if f"ranks_{name}_0" in stored and f"ranks_{name}_1" in stored
    }
    shown, chance = [], []
    for side in (0, 1):
        query = integers(stored, f"query_{side}", None, 0, sizes[side] - 1)[:MAX_SHOWN]
        found = stored[f"found_{side}"].astype(np.int64)[:MAX_SHOWN]
        cosine = stored[f"cosine_{side}"].astype(float)[:MAX_SHOWN]
        if found.ndim != 2 or len(found) != len(query) or cosine.shape != (len(query), found.shape[1] + 1):
            raise InputError(f"the arrays of direction {side} do not fit together.")
        if found.size and not 0 <= found.min() <= found.max() < sizes[1 - side]:
            raise InputError(f"found_{side} names cells that are not there.")
        arrays = {"query": query, "found": found, "cosine": np.clip(np.nan_to_num(cosine), -1, 1)}
        arrays["answer"] = integers(stored, f"answer_{side}", None, 0, sizes[1 - side] - 1)[:MAX_SHOWN]
        arrays["right"] = stored[f"right_{side}"].astype(bool)[:MAX_SHOWN]
        if arrays["right"].shape != found.shape:
            raise InputError(f"right_{side} has an unexpected structure.")
        arrays["worst"] = stored[f"worst_{side}"].astype(bool)[:MAX_SHOWN]
        if any(len(each) != len(query) for each in arrays.values()):
            raise InputError(f"the arrays of direction {side} do not fit together.")
        shown.append(arrays)
        pairs: list[tuple[float, float]] = []
        if f"curve_k_{side}" in stored and f"curve_chance_{side}" in stored:
            k, value = stored[f"curve_k_{side}"].astype(float), stored[f"curve_chance_{side}"].astype(float)
            pairs = list(zip(k.tolist(), value.tolist(), strict=True)) if k.shape == value.shape and k.ndim == 1 else []
        chance.append(pairs)
    mapped = tuple(integers(stored, f"mapped_{side}", None, 0, sizes[side] - 1)[:MAX_MAPPED] for side in (0, 1))
    maps = {key: stored[f"map_{key}"].astype(float) for key in MAPS if f"map_{key}" in stored}
    count_mapped = len(mapped[0]) + len(mapped[1])
    maps = {
        key: each
        for key, each in maps.items()
        if each.shape == (count_mapped, 2) and bool(((each >= 0) & (each <= 100)).all())
    }
    previews = read_previews(stored, 0), read_previews(stored, 1)
    return PairSamples(rows, places, ranks, (shown[0], shown[1]), (chance[0], chance[1]), mapped, maps, previews)  # type: ignore[arg-type]


def recall_chart(title: str, samples: PairSamples, side: int, names: Mapping[str, str]) -> Chart | None:
    """Returns R@k over k on a logarithmic axis, a curve per contestant."""
    keys = len(samples.rows[1 - side])
    k = np.unique(np.geomspace(1, max(keys, 1), 40).round().astype(int))
    series = []
    for key, name in names.items():
        if key in samples.ranks:
            shares = (samples.ranks[key][side][None] <= k[:, None]).mean(1)
            series.append(Series(name, list(zip(k.tolist(), shares.tolist(), strict=True)), key, draw="line"))
    if CHANCE in names and samples.chance[side]:
        series.append(Series(names[CHANCE], samples.chance[side], CHANCE, dashed=True, draw="line"))
    return line_chart(
        series,
        title=title,
        x_label=f"k, of {count(keys)} candidates",
        x_name="k",
        y_label="R@k: share of queries with a right answer among the first k",
        write=lambda value: percent(value, 0),
        limits=(0, 1),
        y_range=(0, 1),
        log_x=True,
    )


def _queries(samples: PairSamples, side: int, own: Previews, other: Previews) -> tuple[list[Shown], list[Shown]]:
    """Returns the worst misses, and queries at random."""
    arrays, sides = samples.shown[side], ([], [])  # type: tuple[Any, tuple[list[Shown], list[Shown]]]
    trained = samples.ranks.get("trained")
    for place, query in enumerate(arrays["query"].tolist()):
        answer, cosine = int(arrays["answer"][place]), arrays["cosine"][place].tolist()
        rank = int(trained[side][query]) if trained is not None else 0
        found, right = arrays["found"][place].tolist(), arrays["right"][place].tolist()
        sides[int(not arrays["worst"][place])].append(
            Shown(
                own.cell(query),
                other.cell(answer),
                rank,
                cosine[0],
                [(other.cell(each), value, ok) for each, value, ok in zip(found, cosine[1:], right, strict=True)],
            )
        )
    return sides


def _map(run: RunData, samples: PairSamples, cells: Sequence[Previews]) -> PairMap | None:
    described = run.evaluation.get("maps")
    for entry in described if isinstance(described, list) else []:
        if not isinstance(entry, dict) or entry.get("key") not in samples.maps:
            continue
        places = samples.maps[entry["key"]]
        layout = Layout(entry["key"], str(entry.get("name")), str(entry.get("caution")), places)
        numbers = [(side, number) for side in (0, 1) for number in samples.mapped[side].tolist()]
        marks = []
        for (left, top), (side, number) in zip(places.tolist(), numbers, strict=True):
            cell = cells[side].cell(number, picture=False)
            marks.append((left, top, side, cell.text or f"row {cell.row}"))
        return PairMap(layout, marks)
    return None


def _rows(
    evaluation: Mapping[str, Any], direction: str, names: Mapping[str, str]
) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    rows = []
    for path, label in FIGURES.items():
        values = {key: _figure(evaluation[key].get(direction), path) for key in names}
        known = [value for value in values.values() if value is not None]
        if not known:
            continue
        lower_is_better = path == "median_rank"
        best = min(known) if lower_is_better else max(known)
        cells = []
        for key, value in values.items():
            text = (
                trim_zeros(significant(value))
                if lower_is_better
                else percent(value)
                if path != "mrr"
                else _decimal(value)
            )
            interval = _interval(
                evaluation[key].get("intervals"), f"{direction}_{path.replace(' ', '_')}", path == "mrr"
            )
            cells.append((text, interval, value is not None and value == best))
        rows.append((label, cells))
    return rows


def _figure(figures: Any, path: str) -> float | None:
    for part in path.split():
        figures = figures.get(part) if isinstance(figures, dict) else None
    return finite(figures)


def cosine_text(value: float) -> str:
    """−0.154 → '−0.15'."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(intervals: Any, name: str, decimal: bool) -> str:
    found = intervals.get(name) if isinstance(intervals, dict) else None
    bounds = [finite(each) for each in found] if isinstance(found, list) and len(found) == 2 else []
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        return ""
    low, high = bounds[0], bounds[1]
    return f"{low:.3f}–{high:.3f}" if decimal else f"{100 * low:.0f}–{100 * high:.0f}"


def _geometry(geometry: Any, columns: tuple[str, str]) -> list[tuple[str, str]]:
    if not isinstance(geometry, dict):
        return []
    rows = [
        ("alignment of pairs (squared distance; 2 is chance)", _figure(geometry, "alignment")),
        ("modality gap (distance of the centers of both towers, 0 to 2)", _figure(geometry, "modality_gap")),
        ("towers told apart by a linear probe (0: chance, 1: always)", _figure(geometry, "towers_told_apart")),
    ]
    for key, name in zip(("first", "second"), columns, strict=True):
        rows.append((f"{name}: uniformity (lower: more evenly spread)", _figure(geometry, f"uniformity {key}")))
        rows.append((f"{name}: effective rank", _figure(geometry, f"effective_rank {key}")))
    return [(label, significant(value)) for label, value in rows if value is not None]


def _towers(towers: Any) -> list[tuple[str, str, str]]:
    rows = []
    for column, found in (towers if isinstance(towers, dict) else {}).items():
        values = [_figure(found, f"knn {name} accuracy") for name in ("trained", "untouched")]
        rows.append((str(column), percent(values[0]), percent(values[1])))
    return rows


def _tiles(evaluation: Mapping[str, Any], names: Mapping[str, str]) -> Score | None:
    values = {key: _figure(evaluation[key], "mean mrr") for key in names}
    found = {key: Value(value) for key, value in values.items() if value is not None}
    return Score("mrr", "mean reciprocal rank, both directions", found, decimal=True) if found else None


def _protocol(protocol: Any, columns: tuple[str, str]) -> str:
    if not isinstance(protocol, dict):
        return ""
    cells, clusters = protocol.get("distinct_cells"), finite(protocol.get("clusters"))
    sentences = []
    if isinstance(cells, list) and len(cells) == 2 and all(finite(each) is not None for each in cells):
        held_out = " and ".join(
            f"{count(number)} of {shorten(name, 40)}" for number, name in zip(cells, columns, strict=True)
        )
        sentences.append(f"There are {held_out}, each counted once. Any right answer counts.")
    if left_out := finite(protocol.get("pairs_left_out")):
        sentences.append(f"{count(left_out)} further pairs were left out by a seeded draw.")
    if clusters is not None:
        sentences.append(f"Intervals: 95%, resampled over {count(clusters)} clusters.")
    return " ".join(sentences)
