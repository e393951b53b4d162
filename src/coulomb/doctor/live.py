"""What is said during training: once, and only what is clearly wrong."""

from collections.abc import Mapping
from typing import Any

from coulomb.doctor.diagnose import RULES
from coulomb.doctor.evidence import Evidence
from coulomb.doctor.rule import SICK, Rule

KEPT = 4_000  # lines; the rules look at the last quarter
PATIENCE = 4  # looks in a row, a fifth of a run, at which a sickness must be found: some runs begin in a clump


class Watcher:
    """Listens to the lines of ``metrics.jsonl`` and asks the rules that are ``live`` at every live evaluation.

    Args:
        config: the options of the run.
        data: ``train`` and ``class_counts``.
        needs_labels: see `Evidence`.
    """

    def __init__(self, config: Mapping[str, Any], data: Mapping[str, Any], needs_labels: bool | None = None) -> None:
        self.config, self.data, self.needs_labels = config, data, needs_labels
        self.lines: list[Mapping[str, Any]] = []
        self.said: set[str] = set()
        self.seen: dict[str, int] = {}

    def hear(self, line: Mapping[str, Any]) -> list[str]:
        """Take in a line; returns sentences to be said now, each sickness once in a run."""
        self.lines.append(line)
        if len(self.lines) > 2 * KEPT:
            del self.lines[:-KEPT]
        if "embedding_std" not in line or not line.get("step"):
            return []
        warmup = float(self.config.get("warmup_epochs") or 0)
        if float(line.get("epoch", 0)) <= warmup:
            return []
        evidence = Evidence(config=self.config, metrics=self.lines, data=self.data, needs_labels=self.needs_labels)
        return [sentence for rule in RULES if rule.live for sentence in self._told(rule, evidence)]

    def _told(self, rule: Rule, evidence: Evidence) -> list[str]:
        answer = rule.judge(evidence)
        self.seen[rule.name] = self.seen.get(rule.name, 0) + 1 if answer.state == SICK else 0
        if self.seen[rule.name] < PATIENCE or rule.name in self.said or self.said & set(rule.explained_by):
            return []
        self.said.add(rule.name)
        epoch = evidence.metrics[-1].get("epoch")
        return [f"{rule.name} at epoch {epoch}: {rule.title} ({answer.why}) {rule.remedy(evidence)}"]
