"""Diagnosis: checks all rules on the evidence and attributes symptoms to their causes."""

from dataclasses import asdict
from typing import Any

from coulomb.evaluation.doctor import (
    data_rules,
    label_rules,
    learning_rules,
    negatives_rules,
    pair_rules,
    weights_rules,
)
from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.rule import SICK, UNKNOWN, WARNING, Judgment, Rule

VERSION = 1

RULES: tuple[Rule, ...] = (  # causes before their symptoms
    data_rules.BLANK,
    label_rules.LABELS_UNRELATED,
    learning_rules.RATE_TOO_HIGH,
    learning_rules.RATE_TOO_LOW,
    learning_rules.COMPLETE_COLLAPSE,
    learning_rules.DIMENSIONAL_COLLAPSE,
    learning_rules.NO_SIGNAL,
    data_rules.AUGMENTATION_TOO_WEAK,
    data_rules.AUGMENTATION_TOO_STRONG,
    negatives_rules.BATCH_TOO_SMALL,
    data_rules.SHORTCUT,
    negatives_rules.TEMPERATURE_TOO_LOW,
    negatives_rules.TEMPERATURE_TOO_HIGH,
    negatives_rules.FALSE_NEGATIVES,
    negatives_rules.HEAD_SCALE,
    negatives_rules.MOMENTUM,
    negatives_rules.STALE_KEYS,
    negatives_rules.QUEUE_TOO_LARGE,
    weights_rules.DRIFT,
    weights_rules.FORGETTING,
    label_rules.IMBALANCE,
    data_rules.DUPLICATES,
    data_rules.LEAK,
    *pair_rules.PAIR_RULES,
    learning_rules.NOTHING_LEARNED,
)


def diagnose(evidence: Evidence) -> dict[str, Any]:
    """Returns the content of ``doctor.json``: ``verdicts``, ``checked``, ``suggestions``, ``healthy``, and the ``step``.

    ``verdicts`` are the problems and warnings, each with ``name``, ``severity``, ``title``, ``evidence`` (figures, the
    thresholds they crossed, the epoch), ``consequence`` and ``remedy``. ``checked`` lists all rules with their ``state``
    (``well``, ``sick``, ``warning``, ``unknown``) and ``why``. A problem explained by another one is not a verdict: its
    state is ``unknown``, and ``why`` names the cause. ``healthy``: no verdict is sick; warnings are allowed.
    """
    judgments = {rule.name: rule.check(evidence) for rule in RULES}
    sick = {name for name, judgment in judgments.items() if judgment.state == SICK}
    verdicts, checked = [], []
    for rule in RULES:
        judgment = judgments[rule.name]
        causes = [cause for cause in rule.explained_by if cause in sick]
        if judgment.state in (SICK, WARNING) and causes:
            why = f"cannot be distinguished from {causes[0]} ({judgment.why})"
            judgment = Judgment(UNKNOWN, why, judgment.figures)
        if judgment.state in (SICK, WARNING):
            verdicts.append(_verdict(rule, judgment, evidence))
        checked.append({"name": rule.name, "state": judgment.state.value, "why": judgment.why})
    verdicts.sort(key=lambda verdict: verdict["severity"] != SICK)
    return {
        "version": VERSION,
        "step": evidence.updates,
        "epoch": max((int(line.get("epoch", 0)) for line in evidence.metrics), default=0),
        "healthy": all(verdict["severity"] != SICK for verdict in verdicts),
        "verdicts": verdicts,
        "checked": checked,
        "suggestions": {"temperature": suggest_temperature(evidence, {verdict["name"] for verdict in verdicts})},
    }


def _verdict(rule: Rule, judgment: Judgment, evidence: Evidence) -> dict[str, Any]:
    return {
        "name": rule.name,
        "severity": judgment.state.value,
        "title": judgment.title or rule.title,
        "evidence": [asdict(each) for each in judgment.figures if each.crossed or judgment.state == WARNING],
        "consequence": judgment.consequence or rule.consequence,
        "remedy": rule.remedy(evidence),
    }


def suggest_temperature(evidence: Evidence, verdicts: set[str]) -> dict[str, Any] | None:
    """Returns ``{"value", "why"}`` if there is a verdict on the temperature and the measured curve has an answer, else None.

    The curve is ``network["sweep"]``, `coulomb.metrics.temperature_sweep` of the trained embeddings, which suggests
    the τ at which the hardest tenth of the negatives carries half of the gradient. Embeddings depend on the temperature
    of their training, so this is the next value to try, not the final one.
    """
    if not verdicts & {"temperature-too-low", "temperature-too-high"}:
        return None
    sweep = evidence.network.get("sweep") or {}
    value, now = sweep.get("suggestion"), float(evidence.config["temperature"])
    if value is None or (value < now) != ("temperature-too-high" in verdicts):
        return (
            None  # no answer, or the embeddings are shaped by their temperature so much that it contradicts the verdict
        )
    return {
        "value": value,
        "why": f"on the embeddings of this run it is {sweep['why']}; {now:g} is far from that. Embeddings depend on their "
        "temperature: run the doctor again after training.",
    }
