"""The results of an evaluation as rows, bars and a confusion matrix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.pages.numbers import percent, plural
from coulomb.report.collect import Run, Samples, finite

# The order and the names they have everywhere on the page.
CONTESTANTS = {"trained": "trained encoder", "raw_pixels": "raw pixels", "random_init": "untrained network"}


@dataclass(frozen=True)
class Value:
    """An accuracy in [0, 1], with its standard deviation over draws where there is one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Score:
    """One measurement for every contestant that has it."""

    key: str
    label: str
    values: dict[str, Value]


def scores(evaluation: dict[str, Any]) -> list[Score]:
    """Rows in reading order; a measurement that nobody has is left out."""
    results = {name: found for name in CONTESTANTS if isinstance(found := evaluation.get(name), dict)}
    rows = [_plain("knn", "k nearest neighbours", results), _plain("linear", "linear probe", results)]
    rows.append(_plain("classifier", "the run's own classifier", results))
    shots = {shot for found in results.values() for shot in _few_shot(found) if str(shot).isdigit()}
    rows += [_few("few_shot_" + shot, shot, results) for shot in sorted(shots, key=int)]
    rows.append(_plain("view_retrieval", "finds its other view", results))
    return [row for row in rows if row.values]


def further_scores(evaluation: dict[str, Any]) -> list[Score]:
    """Rows of the second table: retrieval by class, clustering, fine-tuning."""
    results = {name: found for name in CONTESTANTS if isinstance(found := evaluation.get(name), dict)}
    rows = [_inner("retrieval recall_at " + k, f"retrieval, one of {k} is of the class", results) for k in ("1", "10")]
    rows[0] = _inner("retrieval recall_at 1", "retrieval, nearest is of the class", results)
    rows += [
        _inner("retrieval map_at_r", "retrieval, MAP@R", results),
        _inner("retrieval r_precision", "retrieval, R-precision", results),
        _inner("clustering nmi", "k-means, NMI", results),
        _inner("clustering ari", "k-means, adjusted Rand index", results),
        _inner("clustering accuracy", "k-means, accuracy of the best assignment", results),
    ]
    shares = {share for found in results.values() for share in _mapping(found.get("fine_tune"))}
    for share in sorted((share for share in shares if _number(share) is not None), key=float):
        label = f"fine-tuned with {100 * float(share):.3g} % of the labels"
        rows.append(_inner(f"fine_tune {share} accuracy", label, results))
    return [row for row in rows if row.values]


def frequencies(evaluation: dict[str, Any]) -> tuple[list[str], list[tuple[str, list[float | None]]]]:
    """Headings and rows of the trained encoder's accuracy by how many training images a class has; empty unless two
    groups have classes."""
    groups = _mapping(_mapping(evaluation.get("trained")).get("by_frequency"))
    held = {name: group for name in ("many", "medium", "few") if (group := _mapping(groups.get(name)))}
    if len(held) < 2:
        return [], []
    heads = [
        f"{name}: {plural(round(finite(group.get('classes')) or 0), 'class', 'classes')}"
        for name, group in held.items()
    ]
    ways = {"knn": "k nearest neighbours", "linear": "linear probe", "classifier": "the run's own classifier"}
    rows = [(label, [finite(group.get(way)) for group in held.values()]) for way, label in ways.items()]
    return heads, [row for row in rows if any(value is not None for value in row[1])]


def class_rows(evaluation: dict[str, Any], most: int = 100) -> tuple[list[dict[str, Any]], int]:
    """The trained encoder's table of classes, at most ``most`` rows, and how many there are."""
    rows = _mapping(evaluation.get("trained")).get("per_class")
    good = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    shown = [
        {"class": str(row.get("class", "")), "train": finite(row.get("train")), "test": finite(row.get("test"))}
        | {way: finite(row.get(way)) for way in ("knn", "linear", "classifier") if way in row}
        for row in good[:most]
    ]
    return shown, len(good)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(text: str) -> float | None:
    try:
        return finite(float(text))
    except ValueError:
        return None


def _inner(path: str, label: str, results: dict[str, dict[str, Any]]) -> Score:
    """A figure further inside: ``path`` is its keys with spaces between."""
    values = {}
    for name, result in results.items():
        value: Any = result
        for key in path.split():
            value = _mapping(value).get(key)
        if (found := finite(value)) is not None:
            values[name] = Value(found)
    return Score(path, label, values)


def _few_shot(result: dict[str, Any]) -> dict[str, Any]:
    found = result.get("few_shot")
    return found if isinstance(found, dict) else {}


def _plain(key: str, label: str, results: dict[str, dict[str, Any]]) -> Score:
    found = {name: finite(result.get(key)) for name, result in results.items()}
    return Score(key, label, {name: Value(mean) for name, mean in found.items() if mean is not None})


def _few(key: str, shot: str, results: dict[str, dict[str, Any]]) -> Score:
    values = {}
    for name, result in results.items():
        entry = _few_shot(result).get(shot)
        if isinstance(entry, dict) and (mean := finite(entry.get("mean"))) is not None:
            values[name] = Value(mean, finite(entry.get("std")))
    return Score(key, f"{plural(int(shot), 'label')} a class", values)


MAX_BARS = 60
WAYS = {"classifier": "the run’s own classifier", "knn": "k nearest neighbours", "linear": "linear probe"}
SPREAD = 1.5  # largest / smallest number of training images from which classes are sorted by it


@dataclass(frozen=True)
class Bar:
    """A class: accuracy in [0, 1] and training images."""

    name: str
    accuracy: float
    train: float | None


@dataclass(frozen=True)
class ClassBars:
    """``groups``: heading → bars; one group with an empty heading where all classes have about as many images."""

    way: str
    groups: list[tuple[str, list[Bar]]]
    note: str


def class_bars(run: Run) -> ClassBars | None:
    """By the run's own classifier, else kNN, else the linear probe; None without a table of classes."""
    rows, total = class_rows(run.evaluation, most=10_000)
    way = next((way for way in WAYS if any(row.get(way) is not None for row in rows)), None)
    if way is None:
        return None
    bars = [Bar(row["class"], row[way], row["train"]) for row in rows if row.get(way) is not None]
    counts = [bar.train for bar in bars if bar.train is not None]
    uneven = len(counts) == len(bars) and max(counts) > SPREAD * max(min(counts), 1)
    note = ""
    if uneven:
        bars.sort(key=lambda bar: -(bar.train or 0))
        note = "Sorted by training images."
    if len(bars) > MAX_BARS:
        bars.sort(key=lambda bar: bar.accuracy)
        note = f"The {MAX_BARS} classes with the lowest accuracy, of {total}."
        bars, uneven = bars[:MAX_BARS], False
    return ClassBars(WAYS[way], _grouped(run, bars) if uneven else [("", bars)], note)


def _grouped(run: Run, bars: list[Bar]) -> list[tuple[str, list[Bar]]]:
    many, few = (finite(run.config.get(key)) for key in ("many_above", "few_below"))
    many, few = 100 if many is None else many, 20 if few is None else few
    groups: dict[str, list[Bar]] = {"many": [], "medium": [], "few": []}
    for bar in bars:
        images = bar.train or 0
        groups["many" if images > many else "few" if images < few else "medium"].append(bar)
    filled = [(name, found) for name, found in groups.items() if found]
    return filled if len(filled) > 1 else [("", bars)]


MAX_CLASSES = 30  # a larger matrix is not readable; the list of mistakes stays
MAX_MISTAKES = 10
NEIGHBOURS = 10


@dataclass(frozen=True)
class Confusion:
    """``rows[i][j]``: (share of class i taken for class j, words); empty for too many classes."""

    names: list[str]
    rows: list[list[tuple[float, str]]]
    mistakes: list[tuple[str, str, str]]  # of, taken for, how often
    note: str


def confusion(run: Run, neighbours: np.ndarray | None) -> Confusion | None:
    """None without labels. ``neighbours`` [n, k] of the held-out samples stand in where the evaluation kept no counts."""
    counts = _from_evaluation(run.evaluation)
    note = "By the k nearest training images of every held-out image, as in the evaluation."
    if not counts and run.samples is not None and neighbours is not None:
        counts = _among_samples(run.samples, neighbours)
        note = (
            f"By the {neighbours.shape[1]} nearest among the samples of this page, not by the evaluation: this run was "
            "evaluated before it kept who is taken for whom."
        )
    classes = sorted(counts)
    if len(classes) < 2:
        return None
    totals = {label: sum(row.values()) for label, row in counts.items()}
    found = [(n, label, other) for label, row in counts.items() for other, n in row.items() if n and other != label]
    found.sort(key=lambda entry: (-entry[0] / totals[entry[1]], entry[1], entry[2]))
    mistakes = [
        (run.class_name(label), run.class_name(other), f"{n} of {totals[label]}")
        for n, label, other in found[:MAX_MISTAKES]
    ]
    rows = [[_confusion_cell(run, counts, totals, label, other) for other in classes] for label in classes]
    return Confusion(
        [run.class_name(label) for label in classes], rows if len(classes) <= MAX_CLASSES else [], mistakes, note
    )


def _confusion_cell(
    run: Run, counts: Mapping[int, Mapping[int, int]], totals: Mapping[int, int], label: int, other: int
) -> tuple[float, str]:
    n = counts[label].get(other, 0)
    share = n / totals[label] if totals[label] else 0.0
    images = plural(totals[label], "image")
    return round(
        share, 3
    ), f"{run.class_name(label)} taken for {run.class_name(other)}: {n} of {images}, {percent(share)}"


def _from_evaluation(evaluation: dict[str, Any]) -> dict[int, dict[int, int]]:
    trained = evaluation.get("trained")
    table = trained.get("per_class") if isinstance(trained, dict) else None
    counts = {}
    for row in table if isinstance(table, list) else ():
        taken = row.get("taken_for") if isinstance(row, dict) else None
        label = finite(row.get("label")) if isinstance(row, dict) else None
        if isinstance(taken, dict) and label is not None:
            counts[int(label)] = {int(k): int(n) for k, n in taken.items() if k.lstrip("-").isdigit() and finite(n)}
    return counts if any(counts.values()) else {}


def _among_samples(samples: Samples, neighbours: np.ndarray) -> dict[int, dict[int, int]]:
    """The most frequent class of an image's neighbours; of equal ones the nearest's."""
    labels, counts = samples.labels, dict[int, dict[int, int]]()
    for i in np.flatnonzero((labels >= 0) & samples.held_out):
        around = labels[neighbours[i]]
        around = around[around >= 0]
        if len(around) == 0:
            continue
        found, first, often = np.unique(around, return_index=True, return_counts=True)
        guess = int(found[np.lexsort((first, -often))[0]])
        row = counts.setdefault(int(labels[i]), {})
        row[guess] = row.get(guess, 0) + 1
    return counts
