"""Verdicts as text for a terminal."""

import textwrap
from typing import Any

from coulomb.doctor.diagnose import states
from coulomb.doctor.rule import UNKNOWN

MARKS = {"sick": "✗", "warning": "!"}
WIDTH = 100


def render(found: dict[str, Any]) -> str:
    """``doctor.json`` as text: each verdict with its evidence, consequence and remedy, then the other checks."""
    lines = [summary(found), ""]
    for verdict in found["verdicts"]:
        lines.append(headline(verdict))
        lines += [_wrapped(f"{each}") for each in map(figure_text, verdict["evidence"])]
        lines += [_wrapped(verdict["consequence"]), _wrapped("What to do: " + verdict["remedy"]), ""]
    suggested = found["suggestions"].get("temperature")
    if suggested:
        lines += [_wrapped(f"Try a temperature of {suggested['value']:g}: {suggested['why']}"), ""]
    for state, told in (("well", "well"), ("unknown", "not checked")):
        chosen = [each for each in found["checked"] if each["state"] == state]
        if not chosen:
            continue
        lines.append(f"{told}:")
        lines += [f"  {each['name']:<24}{each['why']}" for each in chosen]
    return "\n".join(lines)


def summary(found: dict[str, Any]) -> str:
    """One sentence; a run is called healthy only if the evaluation shows that it learned something."""
    count = states(found)
    judged = sum(count.values()) - count["unknown"]
    told = f"{judged} of {len(found['checked'])} checks were made, at step {found['step']}"
    if not found["verdicts"]:
        learned = any(each["name"] == "nothing-learned" and each["state"] == "well" for each in found["checked"])
        return f"{'healthy' if learned else 'nothing wrong found'}: {told}"
    parts = [f"{count[name]} {label}" for name, label in (("sick", "sick"), ("warning", "warning")) if count[name]]
    return f"{' and '.join(parts)}: {told}"


def verdict_lines(found: dict[str, Any]) -> str:
    """The summary, two lines per verdict and one per reason for a check not made, for the end of a training."""
    lines = ["doctor: " + summary(found)]
    for verdict in found["verdicts"]:
        lines += ["  " + headline(verdict), f"    What to do: {verdict['remedy']}"]
    reasons: dict[str, list[str]] = {}
    for each in found["checked"]:
        if each["state"] == UNKNOWN:
            reasons.setdefault(each["why"], []).append(each["name"])
    lines += [f"  not checked: {', '.join(names)} ({why})" for why, names in reasons.items()]
    return "\n".join(lines)


def headline(verdict: dict[str, Any]) -> str:
    """The verdict in a line."""
    return f"{MARKS[verdict['severity']]} {verdict['name']}: {verdict['title']}"


def figure_text(figure: dict[str, Any]) -> str:
    """A figure and on which side of its threshold it lies."""
    when = "" if figure["at_epoch"] is None else f", at epoch {figure['at_epoch']}"
    above = figure["bad"] == "above"
    crossed = figure["value"] > figure["threshold"] if above else figure["value"] < figure["threshold"]
    side = figure["bad"] if crossed else f"not {figure['bad']}"
    return f"{figure['what']}: {figure['value']:.3g} ({side} the threshold {figure['threshold']:.3g}{when})"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
