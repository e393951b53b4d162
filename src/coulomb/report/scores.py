"""The results of an evaluation as rows for tables, as bars per class, and as a confusion matrix."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS
from coulomb.ground.reading import finite
from coulomb.report.collect import RunData
from coulomb.report.pages.numbers import percent, plural

CLASSIFIERS = {"knn": "k nearest neighbors", "linear": "linear probe", "classifier": "the run's classifier"}
FREQUENCIES = ("many", "medium", "few")  # groups of classes by their number of training images
MAX_BARS = 60
UNEVEN = 1.5  # largest / smallest class from which the bars are sorted by training images
MAX_CLASSES = 30  # of a confusion matrix; the list of errors is shown for any number
MAX_ERRORS = 10


@dataclass(frozen=True)
class Value:
    """An accuracy in [0, 1], with its standard deviation over draws if there is one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Score:
    """One measurement, for every contestant that has it."""

    key: str
    label: str
    values: dict[str, Value]
    decimal: bool = False  # 0.300 instead of 30.0 %


def scores(evaluation: dict[str, Any], contestants: Iterable[str] = CONTESTANTS) -> list[Score]:
    """Returns the rows of the main table; measurements that no contestant has are left out."""
    results = _results(evaluation, contestants)
    rows = [_score(key, label, results) for key, label in CLASSIFIERS.items()]
    shots = {shot for result in results.values() for shot in _mapping(result.get("few_shot")) if str(shot).isdigit()}
    for shot in sorted(shots, key=int):
        rows.append(
            _score(f"few_shot {shot} mean", f"{plural(int(shot), 'label')} per class", results, "few_shot_" + shot)
        )
    rows.append(_score("view_retrieval", "retrieval of the other view", results))
    return [row for row in rows if row.values]


def further_scores(evaluation: dict[str, Any], contestants: Iterable[str] = CONTESTANTS) -> list[Score]:
    """Returns the rows of the second table: retrieval by class, clustering, fine-tuning."""
    results = _results(evaluation, contestants)
    labels = {
        "retrieval recall_at 1": "retrieval, recall@1",
        "retrieval recall_at 10": "retrieval, recall@10",
        "retrieval map_at_r": "retrieval, MAP@R",
        "retrieval r_precision": "retrieval, R-precision",
        "clustering nmi": "k-means, NMI",
        "clustering ari": "k-means, adjusted Rand index",
        "clustering accuracy": "k-means, accuracy of the best assignment",
    }
    rows = [_score(path, label, results) for path, label in labels.items()]
    shares = {share for result in results.values() for share in _mapping(result.get("fine_tune")) if _is_number(share)}
    for share in sorted(shares, key=float):
        label = f"fine-tuned with {100 * float(share):.3g} % of the labels"
        rows.append(_score(f"fine_tune {share} accuracy", label, results))
    return [row for row in rows if row.values]


def frequencies(evaluation: dict[str, Any]) -> tuple[list[str], list[tuple[str, list[float | None]]]]:
    """Returns headings and rows: the trained encoder's accuracy by the number of training images per class.

    Empty unless at least two groups have classes.
    """
    groups = _mapping(_mapping(evaluation.get("trained")).get("by_frequency"))
    filled = {name: group for name in FREQUENCIES if (group := _mapping(groups.get(name)))}
    if len(filled) < 2:
        return [], []
    sizes = {name: round(finite(group.get("classes")) or 0) for name, group in filled.items()}
    heads = [f"{name}: {plural(size, 'class', 'classes')}" for name, size in sizes.items()]
    rows = [(label, [finite(group.get(way)) for group in filled.values()]) for way, label in CLASSIFIERS.items()]
    return heads, [row for row in rows if any(value is not None for value in row[1])]


def class_rows(evaluation: dict[str, Any], most: int = 100) -> tuple[list[dict[str, Any]], int]:
    """Returns at most ``most`` rows of the trained encoder's table of classes, and the number of all rows."""
    table = _class_table(evaluation)
    rows = [
        {"class": str(row.get("class", "")), "frequency": str(row.get("frequency", ""))}
        | {key: finite(row.get(key)) for key in ("train", "test")}
        | {way: finite(row.get(way)) for way in CLASSIFIERS if way in row}
        for row in table[:most]
    ]
    return rows, len(table)


def _results(evaluation: dict[str, Any], contestants: Iterable[str] = CONTESTANTS) -> dict[str, dict[str, Any]]:
    return {name: result for name in contestants if isinstance(result := evaluation.get(name), dict)}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(text: str) -> bool:
    try:
        return finite(float(text)) is not None
    except ValueError:
        return False


def _score(path: str, label: str, results: dict[str, dict[str, Any]], key: str = "") -> Score:
    """The number under ``path``, keys separated by spaces, with the ``std`` beside a ``mean``."""
    values = {}
    for name, result in results.items():
        *outer, last = path.split()
        inner: Any = result
        for part in outer:
            inner = _mapping(_mapping(inner).get(part))
        if (mean := finite(inner.get(last))) is not None:
            values[name] = Value(mean, finite(inner.get("std")) if last == "mean" else None)
    return Score(key or path, label, values)


def _class_table(evaluation: dict[str, Any]) -> list[dict[str, Any]]:
    rows = _mapping(evaluation.get("trained")).get("per_class")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


@dataclass(frozen=True)
class Bar:
    """The accuracy of a class in [0, 1], and its number of training images."""

    name: str
    accuracy: float
    train: float | None
    frequency: str = ""


@dataclass(frozen=True)
class ClassBars:
    """``groups``: (heading, bars); a single group without heading if the classes have about equally many images."""

    classifier: str
    groups: list[tuple[str, list[Bar]]]
    note: str


def class_bars(evaluation: dict[str, Any]) -> ClassBars | None:
    """Accuracy per class of the run's classifier, else of kNN, else of the linear probe; None without any."""
    rows, total = class_rows(evaluation, most=10_000)
    ways = ("classifier", "knn", "linear")
    way = next((way for way in ways if any(row.get(way) is not None for row in rows)), None)
    if way is None:
        return None
    bars = [Bar(row["class"], row[way], row["train"], row["frequency"]) for row in rows if row.get(way) is not None]
    counts = [bar.train for bar in bars if bar.train is not None]
    uneven = len(counts) == len(bars) and max(counts) > UNEVEN * max(min(counts), 1)
    note = ""
    if uneven:
        bars.sort(key=lambda bar: -(bar.train or 0))
        note = "Sorted by training images."
    if len(bars) > MAX_BARS:
        bars.sort(key=lambda bar: bar.accuracy)
        note = f"The {MAX_BARS} classes with the lowest accuracy, of {total}."
        bars, uneven = bars[:MAX_BARS], False
    label = CLASSIFIERS[way].replace("'", "’")
    return ClassBars(label, _grouped(bars) if uneven else [("", bars)], note)


def _grouped(bars: list[Bar]) -> list[tuple[str, list[Bar]]]:
    groups = [(name, [bar for bar in bars if bar.frequency == name]) for name in FREQUENCIES]
    filled = [(name, members) for name, members in groups if members]
    return filled if len(filled) > 1 else [("", bars)]


@dataclass(frozen=True)
class Confusion:
    """``rows[i][j]``: (share of class i predicted as class j, tooltip); empty if there are too many classes.

    ``errors``: (class, predicted as, how often), the most frequent first.
    """

    names: list[str]
    rows: list[list[tuple[float, str]]]
    errors: list[tuple[str, str, str]]
    note: str


def confusion_matrix(run: RunData) -> Confusion | None:
    """The confusion matrix of the evaluation's kNN; None without labels."""
    counts = _evaluated_counts(run.evaluation)
    note = "Predictions of the evaluation’s kNN, from the k nearest training images."
    labels = sorted(counts)
    if len(labels) < 2:
        return None
    totals = {label: sum(row.values()) for label, row in counts.items()}
    errors = [(n, label, other) for label, row in counts.items() for other, n in row.items() if n and other != label]
    errors.sort(key=lambda error: (-error[0] / totals[error[1]], error[1], error[2]))

    def cell(label: int, predicted: int) -> tuple[float, str]:
        n, total = counts[label].get(predicted, 0), totals[label]
        share = n / total if total else 0.0
        names = f"{run.class_name(label)} predicted as {run.class_name(predicted)}"
        return round(share, 3), f"{names}: {n} of {plural(total, 'image')}, {percent(share)}"

    return Confusion(
        [run.class_name(label) for label in labels],
        [[cell(label, other) for other in labels] for label in labels] if len(labels) <= MAX_CLASSES else [],
        [
            (run.class_name(label), run.class_name(other), f"{n} of {totals[label]}")
            for n, label, other in errors[:MAX_ERRORS]
        ],
        note,
    )


def _evaluated_counts(evaluation: dict[str, Any]) -> dict[int, dict[int, int]]:
    counts = {}
    for row in _class_table(evaluation):
        predictions, label = row.get("taken_for"), finite(row.get("label"))
        if isinstance(predictions, dict) and label is not None:
            counts[int(label)] = {
                int(k): int(n) for k, n in predictions.items() if k.lstrip("-").isdigit() and finite(n)
            }
    return counts if any(counts.values()) else {}
