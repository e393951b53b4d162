"""Diagnoses as text for a terminal."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.doctor.rule import SICK, UNKNOWN, WARNING, WELL
from coulomb.ground.errors import counted
from coulomb.ground.reading import finite

MARKS = {SICK: "✗", WARNING: "!"}
WIDTH = 100


def render(diagnosis: dict[str, Any]) -> str:
    """Returns ``doctor.json`` as text: each verdict with evidence, consequence and remedy, then the other checks."""
    lines = [summary(diagnosis), ""]
    for verdict in diagnosis["verdicts"]:
        lines.append(headline(verdict))
        lines += [_wrap(figure_text(figure)) for figure in verdict["evidence"]]
        lines += [_wrap(verdict["consequence"]), _wrap("What to do: " + verdict["remedy"]), ""]
    suggested = diagnosis["suggestions"].get("temperature")
    if suggested:
        lines += [_wrap(f"Try a temperature of {suggested['value']:g}: {suggested['why']}"), ""]
    for state, title in ((WELL, "well"), (UNKNOWN, "not checked")):
        checks = [check for check in diagnosis["checked"] if check["state"] == state]
        if checks:
            lines += [f"{title}:", *(f"  {check['name']:<24}{check['why']}" for check in checks)]
    return "\n".join(lines)


def summary(diagnosis: dict[str, Any]) -> str:
    """Returns one sentence; a run is called healthy only if the evaluation shows that it learned something."""
    states = [check["state"] for check in diagnosis["checked"]]
    checks = f"{len(states) - states.count(UNKNOWN)} of {len(states)} checks were made, at step {diagnosis['step']}"
    if not diagnosis["verdicts"]:
        learned = any(check["name"] == "nothing-learned" and check["state"] == WELL for check in diagnosis["checked"])
        return f"{'healthy' if learned else 'nothing wrong found'}: {checks}"
    parts = [f"{states.count(state)} {state}" for state in (SICK, WARNING) if state in states]
    return f"{' and '.join(parts)}: {checks}"


def verdict_lines(diagnosis: dict[str, Any], steps: Sequence[str] = ()) -> str:
    """Returns the summary, two lines per verdict, and where to read why checks are missing, for the end of a training.

    ``steps``: those of the evaluation's verdict, which are printed above; a remedy that repeats them is left out.
    """
    lines = ["doctor: " + summary(diagnosis)]
    for verdict in diagnosis["verdicts"]:
        lines.append("  " + headline(verdict))
        if not repeats(verdict["remedy"], steps):
            lines.append(f"    What to do: {verdict['remedy']}")
    if missing := sum(check["state"] == UNKNOWN for check in diagnosis["checked"]):
        lines.append(f"  {counted(missing, 'check was', 'checks were')} not made: `coulomb doctor RUN` says why")
    return "\n".join(lines)


def repeats(remedy: str, steps: Sequence[str]) -> bool:
    """Returns True for a remedy that consists of ``steps`` alone, see ``NOTHING_LEARNED``."""
    for step in steps:
        remedy = remedy.replace(step, "")
    return not remedy.strip()


def headline(verdict: dict[str, Any]) -> str:
    """Returns the verdict in one line."""
    return f"{MARKS[verdict['severity']]} {verdict['name']}: {verdict['title']}"


def figure_text(figure: Mapping[str, Any]) -> str:
    """'effective rank of embeddings: 1.3 (below the threshold 5, at epoch 20)'; missing parts are left out."""
    value, threshold, epoch, bad = (figure.get(key) for key in ("value", "threshold", "at_epoch", "bad"))
    side = ""
    if bad in ("above", "below") and (a := finite(value)) is not None and (b := finite(threshold)) is not None:
        crossed = a > b if bad == "above" else a < b
        side = f"{'' if crossed else 'not '}{bad} the "
    details = [f"{side}threshold {number_text(threshold)}"] if threshold is not None else []
    details += [f"at epoch {number_text(epoch)}"] if epoch is not None else []
    text = f"{figure.get('what', '')}: {number_text(value)}" if value is not None else str(figure.get("what", ""))
    return text + (f" ({', '.join(details)})" if details else "")


def number_text(value: Any) -> str:
    """'12,345', '0.00125'; what is not a number as it is."""
    number = finite(value)
    return str(value) if number is None else f"{number:,.0f}" if number.is_integer() else f"{number:.3g}"


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
