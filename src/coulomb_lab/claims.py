"""Claims of the literature, checked against results, and charts of a result over an option."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coulomb.report.pages.numbers import signed, significant
from coulomb_lab.arms import Arm

Rows = dict[str, dict[str, Any]]  # name of a run or baseline → its results
Places = Sequence[tuple[float, str]]  # position on an axis, and the name of the run

ONE_SEED = 0.01  # with one seed, a smaller difference of accuracies may be chance
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
SHARES = {"knn", "linear", "few_1", "few_5", "few_10", "classifier", "many", "medium", "few"}  # written in percent
ACCURACIES = (("knn", "kNN", "percent"), ("linear", "linear", "percent"), ("few_5", "5 labels", "percent"))
TRAINING = (("epochs", "epochs", "count"), ("seconds", "training", "duration"))  # columns of every table
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Claim:
    """A claim, its source with the published result, and the result here.

    ``holds`` is None if it was not measured. ``chance``: the difference is so small that another seed may reverse it.
    """

    claim: str
    published: str
    measured: str
    holds: bool | None
    chance: bool = False


def read_value(rows: Rows, name: str, key: str) -> float | None:
    """Returns a result of a run; None if the run or the result is missing."""
    result = rows.get(name, {}).get(key)
    return None if result is None else float(result)


def read_values(rows: Rows, names: Iterable[str], key: str) -> dict[str, float]:
    """Returns a result of several runs, without those that are missing."""
    return {name: value for name in names if (value := read_value(rows, name, key)) is not None}


def format_value(rows: Rows, name: str, key: str) -> str:
    """Formats a result, with its standard deviation over seeds if there is one: ``86.0% ± 0.4``."""
    value, std = read_value(rows, name, key), read_value(rows, name, f"{key}_std")
    if value is None:
        return NOT_MEASURED
    deviation = "" if std is None else f" ± {100 * std:.1f}" if key in SHARES else f" ± {significant(std, 2)}"
    return (f"{value:.1%}" if key in SHARES else significant(value)) + deviation


def chance_note(rows: Rows, first: str, second: str, key: str, difference: float) -> str:
    """Returns a clause if the difference of two runs may be chance, else ''."""
    stds = [read_value(rows, name, f"{key}_std") for name in (first, second)]
    if None in stds:
        return "; less than a point may be chance" if key in SHARES and abs(difference) < ONE_SEED else ""
    spread = math.hypot(*[std or 0.0 for std in stds])
    return "; this is within the standard deviation over seeds" if abs(difference) < spread else ""


def at_least(rows: Rows, high: str, low: str, key: str, margin: float, claim: str, published: str) -> Claim:
    """The result of ``high`` is at least the result of ``low`` plus ``margin``."""
    first, second = read_value(rows, high, key), read_value(rows, low, key)
    if first is None or second is None:
        return Claim(claim, published, NOT_MEASURED, None)
    apart = f"{signed(100 * (first - second))} points" if key in SHARES else f"difference {significant(first - second)}"
    values = f"{high} {format_value(rows, high, key)}, {low} {format_value(rows, low, key)}"
    note = chance_note(rows, high, low, key, first - second - margin)
    text = f"{NAMES.get(key, key)}: {values}: {apart}{note}"
    return Claim(claim, published, text, first - second >= margin - 1e-9, bool(note))


def monotone(rows: Rows, places: Places, key: str, rises: bool, claim: str, published: str) -> Claim:
    """Returns the claim that the results rise, or fall, from each place on the axis to the next."""
    names = [name for _, name in sorted(places)]
    values = list(read_values(rows, names, key).values())
    if len(values) < len(names) or len(values) < 2:
        return Claim(claim, published, NOT_MEASURED, None)
    steps = [after - before for before, after in itertools.pairwise(values)]
    clear = [
        not chance_note(rows, a, b, key, step) for (a, b), step in zip(itertools.pairwise(names), steps, strict=True)
    ]
    right = [step > 0 if rises else step < 0 for step in steps]
    refuted = any(is_clear and not is_right for is_clear, is_right in zip(clear, right, strict=True))
    return Claim(claim, published, _listing(rows, names, key), all(right), not refuted and not all(clear))


def best_inside(rows: Rows, places: Places, key: str, claim: str, published: str) -> Claim:
    """Returns the claim that the highest result is at neither end of the axis."""
    names = [name for _, name in sorted(places)]
    values = read_values(rows, names, key)
    if len(values) < max(3, len(names)):
        return Claim(claim, published, NOT_MEASURED, None)
    best, ends = max(values, key=lambda name: values[name]), {names[0], names[-1]}
    rival = max(ends if best not in ends else set(names) - ends, key=lambda name: values[name])
    note = chance_note(rows, best, rival, key, values[best] - values[rival])
    return Claim(claim, published, _listing(rows, names, key) + note, best not in ends, bool(note))


def _listing(rows: Rows, names: Sequence[str], key: str) -> str:
    return f"{NAMES.get(key, key)}: " + ", ".join(f"{name} {format_value(rows, name, key)}" for name in names)


def all_at_least(rows: Rows, names: Iterable[str], key: str, bound: float, claim: str, published: str) -> Claim:
    """Returns the claim that every measured run of ``names`` reaches ``bound``; the others are named."""
    values = read_values(rows, names, key)
    if not values:
        return Claim(claim, published, NOT_MEASURED, None)
    write = (lambda x: f"{x:.1f}") if key in ("rank", "embedding_rank") else (lambda x: f"{x:.1%}")
    below = sorted((name for name, value in values.items() if value < bound - 1e-9), key=lambda name: values[name])
    text = f"{len(values) - len(below)} of {len(values)} reach {write(bound)} ({NAMES.get(key, key)})"
    lowest = min(values, key=lambda name: values[name])
    text += f"; below: {', '.join(f'{name} {write(values[name])}' for name in below)}" if below else ""
    text += "" if below else f"; the lowest: {lowest} {write(values[lowest])}"
    return Claim(claim, published, text, not below)


def all_within(rows: Rows, names: Sequence[str], key: str, most: float, claim: str, published: str) -> Claim:
    """Returns the claim that the results of ``names`` differ by at most ``most``."""
    values = read_values(rows, names, key)
    if len(values) < len(names):
        return Claim(claim, published, NOT_MEASURED, None)
    spread = max(values.values()) - min(values.values())
    listed = ", ".join(f"{name} {value:.1%}" for name, value in values.items())
    return Claim(claim, published, f"{NAMES.get(key, key)}: {listed}; range {100 * spread:.1f} points", spread <= most)


def sweep_arms(
    values: Sequence[float], name: Callable[[float], str], options: Callable[[float], dict[str, Any]], quick: int
) -> list[Arm]:
    """Returns a run for each value of an option."""
    return [Arm(name(value), options(value), quick) for value in values]


def result_series(rows: Rows, places: Places, key: str, name: str) -> dict[str, Any]:
    """Returns a series for a chart: a result of the runs at their places on the axis, with deviations."""
    points = [
        (place, value, read_value(rows, run, f"{key}_std") or 0.0)
        for place, run in sorted(places)
        if (value := read_value(rows, run, key)) is not None
    ]
    return {"name": name, "points": points}


def published_series(points: Sequence[tuple[float, float]], name: str) -> dict[str, Any]:
    """Returns a dashed series of published results."""
    return {"name": name, "points": list(points), "dashed": True}


def chart_spec(title: str, key: str, x_label: str, series: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Returns a chart of one result; its x-axis is logarithmic unless ``more`` says otherwise."""
    labels = {"title": title, "y_label": NAMES.get(key, key), "x_label": x_label}
    return labels | {"log_x": True, "percent": key in SHARES, "series": series} | more


def summary(
    claims: Sequence[Claim], *, charts: Sequence[dict[str, Any]] = (), notes: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """Returns the result of an experiment's ``summarize``, ready for JSON."""
    return {"claims": [asdict(claim) for claim in claims], "charts": list(charts), "notes": list(notes)} | more
