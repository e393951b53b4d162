"""Line charts as data for the page template: positions in percent of the plot, so that CSS sets size, colour and type.

Charts are SVG paths in a stretched 1000 × 1000 box with labels as ordinary text around them: they keep readable letters
on a phone, follow light and dark, print, and need no script.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coulomb.report.axes import Axis, Tick, powers, ticks
from coulomb.report.wording import figure, position

__all__ = ["MAX_POINTS", "Chart", "Curve", "Level", "Series", "Tick", "line_chart", "lines_chart", "ticks"]

Points = Sequence[tuple[float, float]]
MAX_POINTS = 400  # more than a wide screen can show apart
FEW = 40  # points that are drawn as dots too


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with: baseline, no-signal value."""

    value: float
    label: str
    style: str


@dataclass(frozen=True)
class Series:
    """One curve of a chart; ``style`` is a class of the style sheet."""

    name: str
    points: Points
    style: str


@dataclass(frozen=True)
class Curve:
    """A series as SVG paths; ``band`` is the range where points were averaged."""

    name: str
    style: str
    line: str
    band: str
    dots: str


@dataclass
class Chart:
    """What the template draws."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    levels: list[Tick]
    curves: list[Curve]
    summary: str
    note: str = ""
    readout: list[dict[str, Any]] = field(default_factory=list)  # for the script: places and texts of every curve
    kind: str = ""  # a class of the style sheet for the plot


def line_chart(points: Points, *, style: str = "trained", **options: Any) -> Chart | None:
    """One curve of finite ``points``; options of `lines_chart`."""
    return lines_chart([Series("", points, style)], **options)


def lines_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str = "",
    levels: Sequence[Level] = (),
    write: Callable[[float], str] = figure,
    limits: tuple[float, float] = (-math.inf, math.inf),
    x_name: str = "step",
    log_y: bool = False,
) -> Chart | None:
    """Curves over one pair of axes, against horizontal ``levels``; None when there is no finite point.

    A curve of more than ``MAX_POINTS`` points is averaged in groups; where it is the only one, the range within each group
    is drawn as a band. With ``log_y`` values that are not positive are left out.
    """
    found = [(one, _finite(one.points, log_y)) for one in series]
    thinned = [(one, len(points), *_groups(points)) for one, points in found if points]
    if not thinned:
        return None
    shown = [value for *_, groups in thinned for _, _, low, high in groups for value in (low, high)]
    shown += [level.value for level in levels if not log_y or level.value > 0]
    inside = max(limits[0], min(shown)), min(limits[1], max(shown))
    y_ticks = powers(*inside) if log_y else ticks(*inside, limits=limits)
    xs = [x for *_, groups in thinned for x, *_ in groups]
    across = Axis(min(xs), max(xs))
    down = Axis(y_ticks[0], y_ticks[-1], log_y, turned=True)
    several = len(thinned) > 1
    note = ""
    if (group := thinned[0][2]) > 1:
        note = f"Line: mean of {group} steps each" + ("." if several else "; band: their smallest and largest.")
    return Chart(
        title,
        x_label,
        y_label,
        across.marks(ticks(min(xs), max(xs), whole=True, tight=True), position),
        down.marks(y_ticks, write),
        _levels(levels, down),
        [
            Curve(
                one.name,
                one.style,
                _path([(x, y) for x, y, *_ in groups], across, down) if len(groups) > 1 else "",
                _band(groups, across, down) if group > 1 and not several else "",
                "".join(f"M{10 * across.place(x):.0f} {10 * down.place(y):.0f}h0" for x, y, *_ in groups)
                if len(groups) <= FEW
                else "",
            )
            for one, _, group, groups in thinned
        ],
        f"{title}: "
        + "; ".join(
            f"{one.name + ' ' if one.name else ''}from {write(groups[0][1])} to {write(groups[-1][1])} over {n} points"
            for one, n, _, groups in thinned
        ),
        note,
        [
            {
                "x": [round(across.place(x), 2) for x, *_ in groups],
                "y": [round(down.place(y), 2) for _, y, *_ in groups],
                "text": [
                    f"{one.name + ', ' if one.name else ''}{x_name} {position(x)}: {write(y)}" for x, y, *_ in groups
                ],
            }
            for one, _, _, groups in thinned
        ],
    )


def _finite(points: Points, log_y: bool) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y) and (y > 0 or not log_y)]


def _groups(points: list[tuple[float, float]]) -> tuple[int, list[tuple[float, float, float, float]]]:
    """How many points are one, and (x, mean, smallest, largest) of each group."""
    size = math.ceil(len(points) / MAX_POINTS)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    mean = [(sum(x for x, _ in part) / len(part), [y for _, y in part]) for part in parts]
    return size, [(x, sum(ys) / len(ys), min(ys), max(ys)) for x, ys in mean]


def _path(points: Points, across: Axis, down: Axis) -> str:
    return "M" + "L".join(f"{10 * across.place(x):.0f} {10 * down.place(y):.0f}" for x, y in points)


def _band(groups: list[tuple[float, float, float, float]], across: Axis, down: Axis) -> str:
    edge = [(x, high) for x, _, _, high in groups] + [(x, low) for x, _, low, _ in groups[::-1]]
    return _path(edge, across, down) + "Z"


def _levels(levels: Sequence[Level], down: Axis) -> list[Tick]:
    """Labels stand above their line; below it where the line above is too near for both."""
    placed: list[Tick] = []
    for level in sorted(levels, key=lambda level: down.place(level.value)):
        place = round(down.place(level.value), 2)
        crowded = bool(placed) and place - placed[-1].place < 12
        placed.append(Tick(place, level.label, level.style + (" below" if crowded or place < 8 else "")))
    return placed
