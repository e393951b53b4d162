"""Claims of the literature, checked against the results, and charts of a figure over an option."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coulomb.lab.arms import Arm
from coulomb.pages.numbers import signed
from coulomb.pages.numbers import significant as plain

Rows = dict[str, dict[str, Any]]  # name of a run or baseline → its figures

CHANCE = 0.01  # of one seed: a difference that another may turn round, and so the text says

NAMES = {
    "knn": "kNN",
    "linear": "linear probe",
    "few_5": "5-label few-shot",
    "classifier": "accuracy",
    "embedding_rank": "effective rank of the embeddings",
    "uniformity": "uniformity",
    "alignment": "alignment",
    "tolerance": "tolerance",
}
SHARES = {"knn", "linear", "few_1", "few_5", "few_10", "classifier", "many", "medium", "few"}  # told in percent
Places = Sequence[tuple[float, str]]  # where on an axis, and the name of the run


@dataclass(frozen=True)
class Claim:
    """Something the field says, what was published, what was measured here, and whether it ``holds`` (None: not measured).

    ``chance``: by so little, or fails by so little, that another seed may turn it round.
    """

    claim: str
    published: str
    measured: str
    holds: bool | None
    chance: bool = False


def value(rows: Rows, name: str, key: str) -> float | None:
    """A figure; None where the run or the figure is missing."""
    found = rows.get(name, {}).get(key)
    return None if found is None else float(found)


def written(key: str, figure: float) -> str:
    """A figure as claims tell it."""
    return f"{figure:.1%}" if key in SHARES else plain(figure)


def told(rows: Rows, name: str, key: str) -> str:
    """A figure and, of several seeds, its deviation: ``86.0% ± 0.4``."""
    figure, std = value(rows, name, key), value(rows, name, f"{key}_std")
    if figure is None:
        return "not measured"
    around = "" if std is None else f" ± {100 * std:.1f}" if key in SHARES else f" ± {plain(std, 2)}"
    return written(key, figure) + around


def doubt(rows: Rows, first: str, second: str, key: str, beyond: float) -> str:
    """What is to be said of a difference that is ``beyond`` its bound by so little that it may be chance."""
    stds = [value(rows, name, f"{key}_std") for name in (first, second)]
    if None in stds:
        return "; less than a point may be chance" if key in SHARES and abs(beyond) < CHANCE else ""
    return (
        "; that is within the deviation over seeds" if abs(beyond) < math.hypot(*[std or 0.0 for std in stds]) else ""
    )


def at_least(rows: Rows, high: str, low: str, key: str, margin: float, claim: str, published: str) -> Claim:
    """``high``'s figure is at least ``low``'s plus ``margin``; accuracies are told in points."""
    first, second = value(rows, high, key), value(rows, low, key)
    if first is None or second is None:
        return Claim(claim, published, "not measured", None)
    apart = f"{signed(100 * (first - second))} points" if key in SHARES else f"a difference of {plain(first - second)}"
    text = f"{NAMES.get(key, key)} {told(rows, high, key)} of {high}, {told(rows, low, key)} of {low}: {apart}"
    doubtful = doubt(rows, high, low, key, first - second - margin)
    return Claim(claim, published, text + doubtful, first - second >= margin - 1e-9, bool(doubtful))


def monotone(rows: Rows, places: Places, key: str, rises: bool, claim: str, published: str) -> Claim:
    """The figures rise (or fall) from each place on the axis to the next."""
    found = [value(rows, name, key) for _, name in sorted(places)]
    figures = [figure for figure in found if figure is not None]
    if len(figures) < len(found) or len(figures) < 2:
        return Claim(claim, published, "not measured", None)
    steps = [after - before for before, after in itertools.pairwise(figures)]
    text = f"{NAMES.get(key, key)}: " + ", ".join(f"{told(rows, name, key)} of {name}" for _, name in sorted(places))
    names = [name for _, name in sorted(places)]
    sure = [not doubt(rows, a, b, key, step) for (a, b), step in zip(itertools.pairwise(names), steps, strict=True)]
    right = [step > 0 if rises else step < 0 for step in steps]
    against = any(certain and not fits for certain, fits in zip(sure, right, strict=True))
    return Claim(claim, published, text, all(right), not against and not all(sure))


def best_inside(rows: Rows, places: Places, key: str, claim: str, published: str) -> Claim:
    """The best figure lies at neither end of the axis."""
    found = {name: value(rows, name, key) for _, name in sorted(places)}
    if len(found) < 3 or any(figure is None for figure in found.values()):
        return Claim(claim, published, "not measured", None)
    names = list(found)
    best = max(names, key=lambda name: found[name] or 0.0)
    ends = (names[0], names[-1])
    text = f"{NAMES.get(key, key)}: " + ", ".join(f"{told(rows, name, key)} of {name}" for name in names)
    nearest = max(ends, key=lambda name: found[name] or 0.0)
    rival = nearest if best not in ends else max(set(names) - set(ends), key=lambda name: found[name] or 0.0)
    doubtful = doubt(rows, best, rival, key, (found[best] or 0.0) - (found[rival] or 0.0))
    return Claim(claim, published, text + doubtful, best not in ends, bool(doubtful))


def all_above(rows: Rows, names: Iterable[str], key: str, bound: float, claim: str, published: str) -> Claim:
    """Every one of ``names`` that was measured reaches ``bound``; those that do not are named."""
    found = {name: figure for name in names if (figure := value(rows, name, key)) is not None}
    if not found:
        return Claim(claim, published, "not measured", None)
    write = (lambda x: f"{x:.1f}") if key in ("rank", "embedding_rank") else (lambda x: f"{x:.1%}")
    short = {name: figure for name, figure in found.items() if figure < bound - 1e-9}
    text = f"{len(found) - len(short)} of {len(found)} reach {write(bound)} ({NAMES.get(key, key)})"
    lowest = min(found, key=lambda name: found[name])
    below = sorted(short, key=lambda name: short[name])
    text += f"; below it: {', '.join(f'{name} {write(short[name])}' for name in below)}" if short else ""
    text += "" if short else f"; the least: {lowest} {write(found[lowest])}"
    return Claim(claim, published, text, not short)


def within(rows: Rows, names: Iterable[str], key: str, most: float, claim: str, published: str) -> Claim:
    """The figures of ``names`` lie within ``most`` of each other."""
    found = {name: value(rows, name, key) for name in names}
    if any(figure is None for figure in found.values()):
        return Claim(claim, published, "not measured", None)
    figures = {name: float(figure) for name, figure in found.items() if figure is not None}
    spread = max(figures.values()) - min(figures.values())
    listed = ", ".join(f"{name} {figure:.1%}" for name, figure in figures.items())
    return Claim(claim, published, f"{NAMES.get(key, key)}: {listed}; {100 * spread:.1f} points apart", spread <= most)


HEADLINES = (("knn", "kNN", "percent"), ("linear", "linear", "percent"), ("few_5", "5 labels", "percent"))


def sweep(
    values: Sequence[float], name: Callable[[float], str], options: Callable[[float], dict[str, Any]], quick: int
) -> list[Arm]:
    """A run for each value."""
    return [Arm(name(at), options(at), quick) for at in values]


def curve(rows: Rows, places: Places, key: str, name: str) -> dict[str, Any]:
    """A series for a chart: a figure of the runs at their places on the axis, with deviations."""
    points = [
        (at, figure, value(rows, run, f"{key}_std") or 0.0)
        for at, run in sorted(places)
        if (figure := value(rows, run, key)) is not None
    ]
    return {"name": name, "points": points}


def published(points: Sequence[tuple[float, float]], name: str) -> dict[str, Any]:
    """A series that others measured: dashed."""
    return {"name": name, "points": list(points), "dashed": True}


def chart(title: str, key: str, x_label: str, series: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A chart of one figure; a logarithmic axis unless ``more`` says otherwise."""
    share = key in SHARES
    drawn = {"title": title, "y_label": NAMES.get(key, key), "x_label": x_label, "log_x": True, "percent": share}
    return drawn | {"series": series} | more
