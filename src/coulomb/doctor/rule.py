"""Rules, their findings, and remedies that name the option to set."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coulomb.doctor.evidence import Evidence

SICK, WARNING, WELL, UNKNOWN = "sick", "warning", "well", "unknown"


@dataclass(frozen=True)
class Figure:
    """A number that was looked at, and the threshold it was held against.

    Args:
        what: the figure, in words.
        value: as found.
        threshold: the limit.
        bad: on which side of it lies sickness: ``"above"`` or ``"below"``.
        at_epoch: when it was measured; None: over the whole run, or of the data.
    """

    what: str
    value: float
    threshold: float
    bad: str
    at_epoch: int | None = None

    @property
    def crossed(self) -> bool:
        """Whether the value lies on the bad side."""
        return self.value > self.threshold if self.bad == "above" else self.value < self.threshold

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "what": self.what,
            "value": self.value,
            "threshold": self.threshold,
            "bad": self.bad,
            "at_epoch": self.at_epoch,
        }


@dataclass(frozen=True)
class Judgement:
    """A rule's answer: ``state`` is sick, warning, well or unknown, ``why`` a phrase; ``title`` replaces the rule's."""

    state: str
    why: str
    figures: tuple[Figure, ...] = ()
    title: str | None = None


@dataclass(frozen=True)
class Rule:
    """One sickness: its name, how it is judged, what it does to the run, and what to do about it.

    Args:
        name: as in ``doctor.json``.
        title: one plain sentence.
        judge: evidence → judgement, without side effects.
        consequence: why it matters.
        remedy: evidence → what to do, naming options that are not set already; see `coulomb.doctor.remedy`.
        explained_by: sicknesses that have this one as a symptom: where one of them is found, this is not said again.
        live: can be told during training from the lines of ``metrics.jsonl`` alone.
    """

    name: str
    title: str
    judge: Callable[[Evidence], Judgement]
    consequence: str
    remedy: Callable[[Evidence], str]
    explained_by: tuple[str, ...] = ()
    live: bool = False


def unknown(why: str) -> Judgement:
    """There is nothing to judge by."""
    return Judgement(UNKNOWN, why)


def well(why: str, *figures: Figure) -> Judgement:
    """Nothing wrong."""
    return Judgement(WELL, why, figures)


def judged(*figures: Figure, state: str = SICK, enough: Callable[..., bool] = all, **more: str | None) -> Judgement:
    """``state`` where all figures (``enough=any``: one of them) crossed their thresholds, else well."""
    bad = enough(figure.crossed for figure in figures)
    told = [figure for figure in figures if figure.crossed == bad] or list(figures)
    why = ", ".join(f"{figure.what} {figure.value:.3g}" for figure in told)
    return Judgement(state, why, figures, **more) if bad else Judgement(WELL, why, figures)


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
