"""Verdicts as text for a terminal."""

import textwrap
from typing import Any

from coulomb.doctor.diagnose import states

MARKS = {"sick": "✗", "warning": "!"}
WIDTH = 100


def render(found: dict[str, Any]) -> str:
    """``doctor.json`` to read: each verdict with its evidence, consequence and remedy, then what was well."""
    lines = [summary(found), ""]
    for verdict in found["verdicts"]:
        lines.append(headline(verdict))
        lines += [_wrapped(f"{each}") for each in map(figure_text, verdict["evidence"])]
        lines += [_wrapped(verdict["consequence"]), _wrapped("What to do: " + verdict["remedy"]), ""]
    suggested = found["suggestions"].get("temperature")
    if suggested:
        lines += [_wrapped(f"Try a temperature of {suggested['value']:g}: {suggested['why']}"), ""]
    for state, told in (("well", "well"), ("unknown", "not judged")):
        chosen = [each for each in found["checked"] if each["state"] == state]
        if not chosen:
            continue
        lines.append(f"{told}:")
        lines += [f"  {each['name']:<24}{each['why']}" for each in chosen]
    return "\n".join(lines)


def summary(found: dict[str, Any]) -> str:
    """One sentence."""
    count = states(found)
    judged = sum(count.values()) - count["unknown"]
    told = f"{judged} of {len(found['checked'])} checks could be made, at step {found['step']}"
    if not found["verdicts"]:
        return f"healthy: {told}"
    parts = [f"{count[name]} {label}" for name, label in (("sick", "sick"), ("warning", "warning")) if count[name]]
    return f"{' and '.join(parts)}: {told}"


def verdict_lines(found: dict[str, Any]) -> str:
    """The summary and a line a verdict, for the end of a training."""
    return "\n".join(["doctor: " + summary(found), *("  " + headline(verdict) for verdict in found["verdicts"])])


def headline(verdict: dict[str, Any]) -> str:
    """The verdict in a line."""
    return f"{MARKS[verdict['severity']]} {verdict['name']}: {verdict['title']}"


def figure_text(figure: dict[str, Any]) -> str:
    """A figure beside its threshold."""
    when = "" if figure["at_epoch"] is None else f", at epoch {figure['at_epoch']}"
    return f"{figure['what']}: {figure['value']:.3g} ({figure['bad']} {figure['threshold']:.3g}{when})"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
