"""Correlations of cosines with the scores of pairs, of a run's own pairs or of other ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coulomb.evaluation.one_column_verdict import ONE_COLUMN_CONTESTANTS
from coulomb.ground.reading import finite
from coulomb.report.collect import RunData
from coulomb.report.pages.numbers import plural

# Contestant, its name, Spearman's correlation, interval, Pearson's, interval.
ScoredRow = tuple[str, str, str, str, str, str]


@dataclass(frozen=True)
class OtherPairs:
    """Results on other scored pairs, ``transfer/NAME.json``: the name of the data, a sentence, and a row per contestant."""

    name: str
    note: str
    rows: list[ScoredRow]


def scored_rows(evaluation: Mapping[str, Any], names: Mapping[str, str]) -> list[ScoredRow]:
    """Returns the correlations of the contestants that have some."""
    rows = []
    for key, name in names.items():
        cells = []
        for figure in ("spearman", "pearson"):
            value, low, high = (
                number_at(evaluation[key], "scored_pairs", figure, each) for each in ("value", "low", "high")
            )
            cells += ["–" if value is None else f"{value:.3f}"]
            cells += ["" if low is None or high is None else f"{low:.2f} to {high:.2f}"]
        if set(cells) != {"–", ""}:
            rows.append((key, name, cells[0], cells[1], cells[2], cells[3]))
    return rows


def of_scored_pairs(result: Mapping[str, Any]) -> bool:
    """Whether an evaluation on other data is one on scored pairs."""
    protocol = result.get("protocol")
    return isinstance(protocol, dict) and protocol.get("judged_by") == "scored pairs"


def other_pairs(run: RunData) -> list[OtherPairs]:
    """Returns the results of a run on other scored pairs."""
    found = []
    for result in filter(of_scored_pairs, run.transfers):
        protocol = result["protocol"]
        names = {key: name for key, name in ONE_COLUMN_CONTESTANTS.items() if isinstance(result.get(key), dict)}
        if rows := scored_rows(result, names):
            found.append(OtherPairs(str(protocol.get("name", "other pairs")), _note(result), rows))
    return found


def number_at(figures: Any, *path: str) -> float | None:
    """Returns the number at a path of keys; None if there is none."""
    for part in path:
        figures = figures.get(part) if isinstance(figures, dict) else None
    return finite(figures)


def _note(result: Mapping[str, Any]) -> str:
    protocol = result["protocol"]
    measured, left_out = (number_at(protocol, name) for name in ("pairs_measured", "pairs_left_out"))
    parts = [f"Column {result['column']}"] if isinstance(result.get("column"), str) else []
    parts += [plural(round(measured), "pair")] if measured is not None else []
    parts += [f"{round(left_out)} left out for a missing text or score"] if left_out else []
    parts += [similarity] if isinstance(similarity := protocol.get("similarity"), str) else []
    return "; ".join(parts) + ". Intervals: 95%, by resampling pairs."
