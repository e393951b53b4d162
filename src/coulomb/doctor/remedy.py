"""Remedies that name the option to set, and skip what the run has set already."""

from dataclasses import dataclass
from typing import Any

from coulomb.doctor.evidence import Evidence

GROUPS = {"option": "method_options", "view": "view_options"}


@dataclass(frozen=True)
class Option:
    """An option and the value to try.

    Args:
        name: a field of ``Config`` such as ``"temperature"``; ``"option momentum"`` for one of ``method_options``,
            ``"view blur"`` for one of ``view_options``.
        value: the value to try.
    """

    name: str
    value: Any

    def is_set(self, evidence: Evidence) -> bool:
        """True if the run has this value already."""
        group, _, name = self.name.partition(" ")
        found = (evidence.config.get(GROUPS[group]) or {}).get(name) if name else evidence.config.get(self.name)
        return _plain(found) == _plain(self.value)

    def __str__(self) -> str:
        group, _, name = self.name.partition(" ")
        value = _text(self.value)
        return f"--{group} {name}={value}" if name else f"--{self.name.replace('_', '-')} {value}"


def advice(evidence: Evidence, *steps: str | tuple[Any, ...] | None) -> str:
    """One sentence of steps to take, each with the options to set.

    Args:
        evidence: the run; a step is left out when all of its options have the suggested value already.
        steps: a phrase, or a phrase followed by `Option` values; None is skipped.
    """
    phrases = []
    for step in steps:
        if step is None:
            continue
        phrase, *options = (step,) if isinstance(step, str) else step
        left = [str(option) for option in options if not option.is_set(evidence)]
        if left or not options:
            phrases.append(f"{phrase} ({' '.join(left)})" if left else phrase)
    sentence = "; ".join(phrases)
    return sentence[:1].upper() + sentence[1:] + "."


def rounded(value: float) -> float:
    """Two significant digits, as on a command line."""
    return float(f"{value:.2g}")


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
