"""The verdict on a run, ready for the page."""

from dataclasses import dataclass
from typing import Any

from coulomb.evaluation.comparison import BASELINES
from coulomb.evaluation.level import Level
from coulomb.evaluation.verdict import preliminary_verdict
from coulomb.ground.reading import finite
from coulomb.report.collect import RunData
from coulomb.report.pages.numbers import NARROW
from coulomb.report.scores import Score, Value


@dataclass(frozen=True)
class VerdictSection:
    """The verdict's level and texts; ``score`` holds the accuracies that it is based on, if there is an evaluation."""

    level: Level
    headline: str
    sentence: str
    remarks: list[str]
    next: list[str]
    score: Score | None = None

    @property
    def tone(self) -> str:
        """For the color: good, fair, bad or open."""
        return self.level.tone


def verdict_section(run: RunData) -> VerdictSection:
    """Returns the verdict in ``evaluation.json``; without an evaluation, and for a failed training, a preliminary one."""
    preliminary = _section(preliminary_verdict([*run.training, *run.measures]))
    stored = run.evaluation.get("verdict")
    if preliminary.level == Level.FAILED or stored is None:
        return preliminary
    if not _is_verdict(stored):
        run.problems.append("evaluation.json has no readable verdict; coulomb evaluate writes it again.")
        return preliminary
    return _section(stored, _score(run.evaluation.get("comparison")))


def _is_verdict(stored: Any) -> bool:
    """Checks the structure: the folder may come from somebody else."""
    return (
        isinstance(stored, dict)
        and stored.get("level") in list(Level)
        and all(isinstance(stored.get(key), str) for key in ("title", "sentence"))
        and all(isinstance(stored.get(key), list) for key in ("remarks", "next"))
        and all(isinstance(each, str) for key in ("remarks", "next") for each in stored[key])
    )


def _section(verdict: dict[str, Any], score: Score | None = None) -> VerdictSection:
    sentence, *remarks = (text.replace("%", f"{NARROW}%") for text in (verdict["sentence"], *verdict["remarks"]))
    return VerdictSection(Level(verdict["level"]), verdict["title"], sentence, remarks, verdict["next"], score)


def _score(comparison: Any) -> Score | None:
    values: dict[str, Value] = {}
    for entry in comparison if isinstance(comparison, list) else []:
        overall = entry.get("overall") if isinstance(entry, dict) else None
        name = BASELINES.get(str(entry.get("against"))) if isinstance(entry, dict) else None
        if isinstance(overall, dict) and name is not None:
            means = {"trained": finite(overall.get("trained")), name: finite(overall.get("baseline"))}
            values |= {key: Value(mean) for key, mean in means.items() if mean is not None}
    return Score("overall", "overall", values) if values else None
