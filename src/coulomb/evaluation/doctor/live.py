"""Live health checks of a run: each clear problem is reported once during training."""

from collections.abc import Mapping
from typing import Any

from coulomb.evaluation.doctor.diagnose import RULES
from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.rule import SICK, Rule

MOST_LINES = 4_000  # the rules use the last quarter
PATIENCE = 4  # consecutive checks, a fifth of a run, that must find a problem; some runs start with similar embeddings


class Watcher:
    """Reads the lines of ``metrics.jsonl`` and checks the ``live`` rules at every live evaluation.

    Args:
        config: the options of the run.
        data: ``train`` and ``class_counts``.
        needs_labels: see `Evidence`.
        remedies: end a warning with what to do, in options of ``coulomb train``; False: with the consequence, for the
            training loops of other programs, which have other options.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        data: Mapping[str, Any],
        needs_labels: bool | None = None,
        *,
        remedies: bool = True,
    ) -> None:
        self.config, self.data, self.needs_labels, self.remedies = config, data, needs_labels, remedies
        self.lines: list[Mapping[str, Any]] = []
        self.reported: set[str] = set()
        self.sick_in_a_row: dict[str, int] = {}

    def read(self, line: Mapping[str, Any]) -> list[str]:
        """Adds a line and returns the warnings to log now, each problem once per run."""
        self.lines.append(line)
        if len(self.lines) > 2 * MOST_LINES:
            del self.lines[:-MOST_LINES]
        if "embedding_std" not in line or not line.get("step"):
            return []
        if float(line.get("epoch", 0)) <= float(self.config.get("warmup_epochs") or 0):
            return []
        evidence = Evidence(config=self.config, metrics=self.lines, data=self.data, needs_labels=self.needs_labels)
        warnings = [self._warning(rule, evidence) for rule in RULES if rule.live]
        return [warning for warning in warnings if warning]

    def _warning(self, rule: Rule, evidence: Evidence) -> str | None:
        judgment = rule.check(evidence)
        count = self.sick_in_a_row.get(rule.name, 0) + 1 if judgment.state == SICK else 0
        self.sick_in_a_row[rule.name] = count
        if count < PATIENCE or rule.name in self.reported or self.reported & set(rule.explained_by):
            return None
        self.reported.add(rule.name)
        epoch = evidence.metrics[-1].get("epoch")
        end = rule.remedy(evidence) if self.remedies else rule.consequence
        return f"{rule.name} at epoch {epoch}: {rule.title} ({judgment.why}) {end}"
