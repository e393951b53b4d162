"""A rule, its answer, and remedies that name the option to set."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coulomb.evaluation.doctor.evidence import LEAST_UPDATES, Evidence


class State(StrEnum):
    """The answer of a rule, as in ``doctor.json``."""

    SICK = "sick"
    WARNING = "warning"
    WELL = "well"
    UNKNOWN = "unknown"


SICK, WARNING, WELL, UNKNOWN = State
# Problems that many others are symptoms of.
DATA = ("images-blank", "labels-unrelated")
RATES = ("learning-rate-too-high", "learning-rate-too-low")
KEYS = ("temperature-too-low", "momentum-wrong", "queue-stale")
GROUPS = {"option": "method_options", "view": "view_options"}


@dataclass(frozen=True)
class Figure:
    """A measured value and its threshold.

    Args:
        what: description of the value.
        value: the measured value.
        threshold: the limit.
        bad: the side of the threshold that indicates a problem: ``"above"`` or ``"below"``.
        at_epoch: when it was measured; None: over the whole run, or of the data.
    """

    what: str
    value: float
    threshold: float
    bad: str
    at_epoch: int | None = None

    @property
    def crossed(self) -> bool:
        """True if the value is on the bad side."""
        return self.value > self.threshold if self.bad == "above" else self.value < self.threshold


@dataclass(frozen=True)
class Judgment:
    """The answer of a rule: its ``state`` and a phrase that says ``why``.

    ``title`` and ``consequence`` replace the rule's.
    """

    state: State
    why: str
    figures: tuple[Figure, ...] = ()
    title: str | None = None
    consequence: str | None = None


@dataclass(frozen=True)
class Rule:
    """One problem: how it is recognized, what it does to the run, and what to do about it.

    Args:
        name: its name in ``doctor.json``.
        title: one plain sentence.
        check: evidence → judgment, without side effects.
        consequence: why it matters.
        remedy: evidence → what to do, naming options that are not set already; see `advice`.
        explained_by: problems that have this one as a symptom: if one of them is found, this one is not reported.
        live: can be checked during training from the lines of ``metrics.jsonl`` alone.
    """

    name: str
    title: str
    check: Callable[[Evidence], Judgment]
    consequence: str
    remedy: Callable[[Evidence], str]
    explained_by: tuple[str, ...] = ()
    live: bool = False


def unknown(why: str) -> Judgment:
    """Returns the judgment of a rule that cannot be checked."""
    return Judgment(UNKNOWN, why)


def too_early(evidence: Evidence, least: int = LEAST_UPDATES) -> Judgment | None:
    """Returns "unknown" for a run with fewer than ``least`` updates, else None."""
    return unknown(f"{evidence.updates} updates are too few") if evidence.updates < least else None


def judge(*figures: Figure, state: State = SICK, enough: Callable[..., bool] = all) -> Judgment:
    """Returns ``state`` if all figures (``enough=any``: one of them) crossed their thresholds, else well."""
    bad = enough(figure.crossed for figure in figures)
    deciding = [figure for figure in figures if figure.crossed == bad] or list(figures)
    why = ", ".join(f"{figure.what} {figure.value:.3g}" for figure in deciding)
    return Judgment(state if bad else WELL, why, figures)


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
        current = (evidence.config.get(GROUPS[group]) or {}).get(name) if name else evidence.config.get(self.name)
        return _hashable(current) == _hashable(self.value)

    def __str__(self) -> str:
        group, _, name = self.name.partition(" ")
        value = _format(self.value)
        return f"--{group} {name}={value}" if name else f"--{self.name.replace('_', '-')} {value}"


def advice(evidence: Evidence, *steps: str | tuple[Any, ...] | None) -> str:
    """Returns one sentence of steps to take, each with the options to set.

    Args:
        evidence: the run; a step is left out if all of its options have the suggested value already.
        steps: a phrase, or a phrase followed by `Option` values; None is skipped.
    """
    phrases = []
    for step in steps:
        if step is None:
            continue
        phrase, *options = (step,) if isinstance(step, str) else step
        unset = [str(option) for option in options if not option.is_set(evidence)]
        if unset or not options:
            phrases.append(f"{phrase} ({' '.join(unset)})" if unset else phrase)
    sentence = "; ".join(phrases)
    return sentence[:1].upper() + sentence[1:] + "."


def rounded(value: float) -> float:
    """Returns the value with two significant digits, as for a command line."""
    return float(f"{value:.2g}")


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _format(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ",".join(map(_format, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
