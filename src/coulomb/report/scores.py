"""What was measured of the trained encoder and of its two baselines, as one list of rows for table, bars and verdict."""

from dataclasses import dataclass
from typing import Any

from coulomb.report.collect import finite
from coulomb.report.wording import plural

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
