"""One option at several values: the runs, and how a figure goes with the value."""

from collections.abc import Callable, Sequence
from typing import Any

from coulomb.lab.arms import Arm
from coulomb.lab.claims import NAMES, SHARES, Places, Rows, value

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
