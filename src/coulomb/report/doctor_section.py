"""What the doctor found, from the run folder's ``doctor.json``, ready for the page."""

from dataclasses import dataclass
from typing import Any

from coulomb.pages.chart import short
from coulomb.pages.numbers import count, figure, plural
from coulomb.report.collect import Run, finite

SEVERITIES = {"sick": 0, "warning": 1}
STATES = ("sick", "warning", "unknown", "well")


@dataclass(frozen=True)
class Finding:
    """One verdict; ``evidence`` in sentences."""

    name: str
    severity: str
    title: str
    evidence: list[str]
    consequence: str
    remedy: str


@dataclass(frozen=True)
class DoctorSection:
    """Verdicts, the worst first; what was checked as (name, state, why); suggestions and a note as sentences."""

    headline: str
    findings: list[Finding]
    checked: list[tuple[str, str, str]]
    suggestions: list[str]
    stale: str


def doctor_section(run: Run) -> DoctorSection | None:
    """None where the doctor has not looked, or what it wrote cannot be read."""
    if not isinstance(run.doctor.get("verdicts"), list):
        return None
    findings = [_finding(entry) for entry in run.doctor["verdicts"] if isinstance(entry, dict)]
    findings.sort(key=lambda finding: SEVERITIES.get(finding.severity, 2))
    checked = [
        (_words(entry.get("name", "")), state, str(entry.get("why") or ""))
        for entry in _list(run.doctor.get("checked"))
        if isinstance(entry, dict) and (state := entry.get("state")) in STATES
    ]
    checked.sort(key=lambda entry: STATES.index(entry[1]))
    return DoctorSection(
        _headline(findings, checked), findings, checked, _suggestions(run.doctor.get("suggestions")), _stale(run)
    )


def _finding(entry: dict[str, Any]) -> Finding:
    return Finding(
        _words(entry.get("name", "")),
        "sick" if entry.get("severity") == "sick" else "warning",
        str(entry.get("title") or _words(entry.get("name", ""))),
        [_evidence(item) for item in _list(entry.get("evidence")) if isinstance(item, dict)],
        str(entry.get("consequence") or ""),
        str(entry.get("remedy") or ""),
    )


def _evidence(item: dict[str, Any]) -> str:
    """'effective rank of embeddings: 1.30 (threshold 5, at epoch 20)'."""
    value, threshold, epoch = (item.get(key) for key in ("value", "threshold", "at_epoch"))
    side = ""
    if (
        item.get("bad") in ("above", "below")
        and (a := finite(value)) is not None
        and (b := finite(threshold)) is not None
    ):
        crossed = a > b if item["bad"] == "above" else a < b
        side = f"{'' if crossed else 'not '}{item['bad']} the "
    inside = [f"{side}threshold {_value(threshold)}"] if threshold is not None else []
    inside += [f"at epoch {_value(epoch)}"] if epoch is not None else []
    told = f"{item.get('what', '')}: {_value(value)}" if value is not None else str(item.get("what", ""))
    return told + (f" ({', '.join(inside)})" if inside else "")


def _value(value: Any) -> str:
    number = finite(value)
    if number is None:
        return str(value)
    return count(number) if number.is_integer() else short(figure(number))


def _headline(findings: list[Finding], checked: list[tuple[str, str, str]]) -> str:
    sick = sum(finding.severity == "sick" for finding in findings)
    warnings = len(findings) - sick
    told = [plural(sick, "illness", "illnesses")] if sick else []
    told += [plural(warnings, "warning")] if warnings else []
    if told:
        return f"The doctor found {' and '.join(told)}"
    well = sum(state == "well" for _, state, _ in checked)
    return "The doctor found nothing wrong" if well or not checked else "The doctor could judge nothing yet"


def _suggestions(found: Any) -> list[str]:
    told = []
    for name, entry in found.items() if isinstance(found, dict) else ():
        if isinstance(entry, dict) and entry.get("value") is not None:
            told.append(f"{_words(name).capitalize()} {_value(entry['value'])}: {entry.get('why') or ''}".rstrip(": "))
    return told


def _stale(run: Run) -> str:
    """A sentence when the run went on after the doctor looked."""
    looked = finite(run.doctor.get("step"))
    steps = [step for line in run.training if (step := finite(line.get("step"))) is not None]
    if looked is None or not steps or max(steps) <= looked:
        return ""
    return f"This was at step {count(looked)}; the run has reached step {count(max(steps))} since: run coulomb doctor again."


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(name: Any) -> str:
    return str(name).replace("-", " ").replace("_", " ")
