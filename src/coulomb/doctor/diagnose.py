"""From evidence to verdicts: every rule is asked, and symptoms are left to their causes."""

from typing import Any

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.rule import SICK, UNKNOWN, WARNING, WELL, Judgement, Rule
from coulomb.doctor.rules import RULES
from coulomb.doctor.suggest import suggest_temperature

VERSION = 1


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
