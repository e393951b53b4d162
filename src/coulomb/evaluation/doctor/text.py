"""Diagnoses as text for a terminal."""

import textwrap
from typing import Any

from coulomb.evaluation.doctor.rule import SICK, UNKNOWN, WARNING, WELL

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


def verdict_lines(diagnosis: dict[str, Any]) -> str:
    """Returns the summary, two lines per verdict and one per reason for missing checks, for the end of a training."""
    lines = ["doctor: " + summary(diagnosis)]
    for verdict in diagnosis["verdicts"]:
        lines += ["  " + headline(verdict), f"    What to do: {verdict['remedy']}"]
    reasons: dict[str, list[str]] = {}
    for check in diagnosis["checked"]:
        if check["state"] == UNKNOWN:
            reasons.setdefault(check["why"], []).append(check["name"])
    lines += [f"  not checked: {', '.join(names)} ({why})" for why, names in reasons.items()]
    return "\n".join(lines)


def headline(verdict: dict[str, Any]) -> str:
    """Returns the verdict in one line."""
    return f"{MARKS[verdict['severity']]} {verdict['name']}: {verdict['title']}"


def figure_text(figure: dict[str, Any]) -> str:
    """Returns a figure and the side of its threshold."""
    when = "" if figure["at_epoch"] is None else f", at epoch {figure['at_epoch']}"
    above = figure["bad"] == "above"
    crossed = figure["value"] > figure["threshold"] if above else figure["value"] < figure["threshold"]
    side = figure["bad"] if crossed else f"not {figure['bad']}"
    return f"{figure['what']}: {figure['value']:.3g} ({side} the threshold {figure['threshold']:.3g}{when})"


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
