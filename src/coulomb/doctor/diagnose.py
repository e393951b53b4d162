"""From evidence to verdicts: every rule is checked, and symptoms are attributed to their causes."""

from typing import Any

from coulomb.doctor import data_rules, label_rules, learning_rules, negatives_rules
from coulomb.doctor.evidence import Evidence
from coulomb.doctor.rule import SICK, UNKNOWN, WARNING, WELL, Judgement, Rule

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
    label_rules.IMBALANCE,
    data_rules.DUPLICATES,
    data_rules.LEAK,
    learning_rules.NOTHING_LEARNED,
)


def diagnose(evidence: Evidence, rules: tuple[Rule, ...] = RULES) -> dict[str, Any]:
    """The content of ``doctor.json``: ``verdicts``, ``checked``, ``suggestions``, ``healthy``, and at which ``step``.

    ``verdicts`` are what is sick or deserves a warning, each with ``name``, ``severity``, ``title``, ``evidence`` (figures,
    the thresholds they crossed, the epoch), ``consequence`` and ``remedy``; ``checked`` is every rule with its ``state``
    (``well``, ``sick``, ``warning``, ``unknown``) and ``why``. A sickness that another one explains is no verdict of its own:
    its state is ``unknown``, and ``why`` names the cause. ``healthy``: nothing is sick; warnings are no sickness.
    """
    found = {rule.name: rule.judge(evidence) for rule in rules}
    sick = {name for name, answer in found.items() if answer.state == SICK}
    verdicts, checked = [], []
    for rule in rules:
        answer = found[rule.name]
        causes = [cause for cause in rule.explained_by if cause in sick]
        if answer.state in (SICK, WARNING) and causes:
            answer = Judgement(UNKNOWN, f"cannot be told apart from {causes[0]} ({answer.why})", answer.figures)
        if answer.state in (SICK, WARNING):
            verdicts.append(_verdict(rule, answer, evidence))
        checked.append({"name": rule.name, "state": answer.state, "why": answer.why})
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


def _verdict(rule: Rule, answer: Judgement, evidence: Evidence) -> dict[str, Any]:
    return {
        "name": rule.name,
        "severity": answer.state,
        "title": answer.title or rule.title,
        "evidence": [figure.to_dict() for figure in answer.figures if figure.crossed or answer.state == WARNING],
        "consequence": rule.consequence,
        "remedy": rule.remedy(evidence),
    }


def states(found: dict[str, Any]) -> dict[str, int]:
    """How many rules came out how."""
    return {state: sum(each["state"] == state for each in found["checked"]) for state in (SICK, WARNING, WELL, UNKNOWN)}


def suggest_temperature(evidence: Evidence, verdicts: set[str]) -> dict[str, Any] | None:
    """``{"value", "why"}`` where the temperature is sick and the curve has an answer; else None.

    The curve is ``network["sweep"]``, `coulomb.diagnostics.temperature_sweep` of trained embeddings, nothing retrained; its
    rule picks the τ at which the hardest tenth of the negatives carries half of the push. Embeddings follow the temperature
    they are trained at, so this is where to go next, not where to end.
    """
    if not verdicts & {"temperature-too-low", "temperature-too-high"}:
        return None
    sweep = evidence.network.get("sweep") or {}
    value, now = sweep.get("suggestion"), float(evidence.config["temperature"])
    if value is None or (value < now) != ("temperature-too-high" in verdicts):
        return None  # no answer, or embeddings so shaped by their temperature that it points the wrong way
    return {
        "value": value,
        "why": f"on the embeddings of this run it is {sweep['why']}; {now:g} is far from that. Embeddings change with their "
        "temperature: look again after training.",
    }
