"""Accuracy class by class as bars, in groups of many, medium and few training images."""

from dataclasses import dataclass

from coulomb.report.collect import Run, finite
from coulomb.report.scores import class_rows

MAX_BARS = 60
WAYS = {"classifier": "the run’s own classifier", "knn": "k nearest neighbours", "linear": "linear probe"}
SPREAD = 1.5  # largest / smallest number of training images from which classes are sorted by it


@dataclass(frozen=True)
class Bar:
    """A class: accuracy in [0, 1] and training images."""

    name: str
    accuracy: float
    train: float | None


@dataclass(frozen=True)
class ClassBars:
    """``groups``: heading → bars; one group with an empty heading where all classes have about as many images."""

    way: str
    groups: list[tuple[str, list[Bar]]]
    note: str


def class_bars(run: Run) -> ClassBars | None:
    """By the run's own classifier, else kNN, else the linear probe; None without a table of classes."""
    rows, total = class_rows(run.evaluation, most=10_000)
    way = next((way for way in WAYS if any(row.get(way) is not None for row in rows)), None)
    if way is None:
        return None
    bars = [Bar(row["class"], row[way], row["train"]) for row in rows if row.get(way) is not None]
    counts = [bar.train for bar in bars if bar.train is not None]
    uneven = len(counts) == len(bars) and max(counts) > SPREAD * max(min(counts), 1)
    note = ""
    if uneven:
        bars.sort(key=lambda bar: -(bar.train or 0))
        note = "Sorted by training images."
    if len(bars) > MAX_BARS:
        bars.sort(key=lambda bar: bar.accuracy)
        note = f"The {MAX_BARS} classes with the lowest accuracy, of {total}."
        bars, uneven = bars[:MAX_BARS], False
    return ClassBars(WAYS[way], _grouped(run, bars) if uneven else [("", bars)], note)


def _grouped(run: Run, bars: list[Bar]) -> list[tuple[str, list[Bar]]]:
    many, few = (finite(run.config.get(key)) for key in ("many_above", "few_below"))
    many, few = 100 if many is None else many, 20 if few is None else few
    groups: dict[str, list[Bar]] = {"many": [], "medium": [], "few": []}
    for bar in bars:
        images = bar.train or 0
        groups["many" if images > many else "few" if images < few else "medium"].append(bar)
    filled = [(name, found) for name, found in groups.items() if found]
    return filled if len(filled) > 1 else [("", bars)]
