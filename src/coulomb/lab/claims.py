"""Claims of the field, each judged by what was measured here."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Rows = dict[str, dict[str, Any]]  # name of a run or baseline → its figures

CHANCE = 0.01  # a difference that another seed may turn round, and so the text says

NAMES = {
    "knn": "kNN",
    "linear": "linear probe",
    "few_5": "5-label few-shot",
    "classifier": "accuracy",
    "embedding_rank": "effective rank of the embeddings",
}


@dataclass(frozen=True)
class Claim:
    """Something the field says, what was published, what was measured here, and whether it ``holds`` (None: not measured)."""

    claim: str
    published: str
    measured: str
    holds: bool | None


def value(rows: Rows, name: str, key: str) -> float | None:
    """A figure; None where the run or the figure is missing."""
    found = rows.get(name, {}).get(key)
    return None if found is None else float(found)


def at_least(rows: Rows, high: str, low: str, key: str, margin: float, claim: str, published: str) -> Claim:
    """``high``'s figure is at least ``low``'s plus ``margin``; accuracies, so that it is told in points."""
    first, second = value(rows, high, key), value(rows, low, key)
    if first is None or second is None:
        return Claim(claim, published, "not measured", None)
    told = f"{NAMES.get(key, key)} {first:.1%} of {high}, {second:.1%} of {low}: {100 * (first - second):+.1f} points"
    told += "; less than a point may be chance" if abs(first - second - margin) < CHANCE else ""
    return Claim(claim, published, told, first - second >= margin - 1e-9)


def all_above(rows: Rows, names: Iterable[str], key: str, bound: float, claim: str, published: str) -> Claim:
    """Every one of ``names`` that was measured reaches ``bound``; those that do not are named."""
    found = {name: figure for name in names if (figure := value(rows, name, key)) is not None}
    if not found:
        return Claim(claim, published, "not measured", None)
    write = (lambda x: f"{x:.1f}") if key in ("rank", "embedding_rank") else (lambda x: f"{x:.1%}")
    short = {name: figure for name, figure in found.items() if figure < bound - 1e-9}
    told = f"{len(found) - len(short)} of {len(found)} reach {write(bound)} ({NAMES.get(key, key)})"
    lowest = min(found, key=lambda name: found[name])
    below = sorted(short, key=lambda name: short[name])
    told += f"; below it: {', '.join(f'{name} {write(short[name])}' for name in below)}" if short else ""
    told += "" if short else f"; the least: {lowest} {write(found[lowest])}"
    return Claim(claim, published, told, not short)


def within(rows: Rows, names: Iterable[str], key: str, most: float, claim: str, published: str) -> Claim:
    """The figures of ``names`` lie within ``most`` of each other."""
    found = {name: value(rows, name, key) for name in names}
    if any(figure is None for figure in found.values()):
        return Claim(claim, published, "not measured", None)
    figures = {name: float(figure) for name, figure in found.items() if figure is not None}
    spread = max(figures.values()) - min(figures.values())
    listed = ", ".join(f"{name} {figure:.1%}" for name, figure in figures.items())
    return Claim(claim, published, f"{NAMES.get(key, key)}: {listed}; {100 * spread:.1f} points apart", spread <= most)
