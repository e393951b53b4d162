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
    shots = {shot for found in results.values() for shot in _few_shot(found) if str(shot).isdigit()}
    rows += [_few("few_shot_" + shot, shot, results) for shot in sorted(shots, key=int)]
    rows.append(_plain("view_retrieval", "finds its other view", results))
    return [row for row in rows if row.values]


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
