"""The doctor's diagnosis from ``doctor.json``, ready for the page."""

from dataclasses import dataclass
from typing import Any

from coulomb.evaluation.doctor.rule import State
from coulomb.evaluation.doctor.text import figure_text, number_text, repeats
from coulomb.ground.reading import finite
from coulomb.report.collect import RunData
from coulomb.report.pages.numbers import count, plural

STATES = (State.SICK, State.WARNING, State.UNKNOWN, State.WELL)  # the order on the page


@dataclass(frozen=True)
class Finding:
    """A problem that the doctor found; ``evidence`` as sentences."""

    name: str
    severity: State
    title: str
    evidence: list[str]
    consequence: str
    remedy: str


@dataclass(frozen=True)
class DoctorSection:
    """Findings, the worst first; ``checked`` (name, state, reason); suggestions and a note on age as sentences."""

    headline: str
    findings: list[Finding]
    checked: list[tuple[str, State, str]]
    suggestions: list[str]
    stale: str


def doctor_section(run: RunData) -> DoctorSection | None:
    """Returns None if there is no readable diagnosis."""
    doctor = run.doctor
    if not isinstance(doctor.get("verdicts"), list):
        return None
    verdict = run.evaluation.get("verdict")
    steps = [str(step) for step in _list(verdict.get("next"))] if isinstance(verdict, dict) else []
    findings = [_finding(entry, steps) for entry in doctor["verdicts"] if isinstance(entry, dict)]
    findings.sort(key=lambda finding: STATES.index(finding.severity))
    checked = [
        (_words(entry.get("name", "")), State(entry["state"]), str(entry.get("why") or ""))
        for entry in _list(doctor.get("checked"))
        if isinstance(entry, dict) and entry.get("state") in STATES
    ]
    checked.sort(key=lambda entry: STATES.index(entry[1]))
    suggestions = doctor.get("suggestions")
    return DoctorSection(
        _headline(findings, checked),
        findings,
        checked,
        [
            f"{_words(name).capitalize()} {number_text(entry['value'])}: {entry.get('why') or ''}".rstrip(": ")
            for name, entry in (suggestions.items() if isinstance(suggestions, dict) else ())
            if isinstance(entry, dict) and entry.get("value") is not None
        ],
        _stale(run),
    )


def _finding(entry: dict[str, Any], steps: list[str]) -> Finding:
    """``steps`` are on the page, beside the verdict: a remedy that repeats them is left out."""
    remedy = str(entry.get("remedy") or "")
    return Finding(
        _words(entry.get("name", "")),
        State.SICK if entry.get("severity") == State.SICK else State.WARNING,
        str(entry.get("title") or _words(entry.get("name", ""))),
        [figure_text(item) for item in _list(entry.get("evidence")) if isinstance(item, dict)],
        str(entry.get("consequence") or ""),
        "" if repeats(remedy, steps) else remedy,
    )


def _headline(findings: list[Finding], checked: list[tuple[str, State, str]]) -> str:
    sick = sum(finding.severity == State.SICK for finding in findings)
    warnings = len(findings) - sick
    parts = [plural(sick, "problem")] if sick else []
    parts += [plural(warnings, "warning")] if warnings else []
    if parts:
        return f"The doctor found {' and '.join(parts)}"
    well = any(state == State.WELL for _, state, _ in checked)
    return "The doctor found no problems" if well or not checked else "The doctor could not check anything yet"


def _stale(run: RunData) -> str:
    """A sentence if the run continued after the diagnosis."""
    diagnosed = finite(run.doctor.get("step"))
    last = max((step for line in run.training if (step := finite(line.get("step"))) is not None), default=None)
    if diagnosed is None or last is None or last <= diagnosed:
        return ""
    return (
        f"This diagnosis is from step {count(diagnosed)}; the run has reached step {count(last)} since. Run coulomb doctor "
        "again."
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(name: Any) -> str:
    return str(name).replace("-", " ").replace("_", " ")
