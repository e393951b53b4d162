"""Line charts as data for page templates: one engine for reports, the lab, benchmarks and the documentation.

Written by hand because no plotting library in the dependencies makes a chart that is a few kilobytes of SVG and text,
follows light and dark, reads on a phone and keeps its tooltips offline: matplotlib's SVG is static, plotly's script is 4 MB.

Positions are percentages of the plot, so that CSS sets size, color and type. Curves are SVG paths in a stretched
1000 × 1000 box; labels are ordinary text around it. Nothing needs a script but the tooltips.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coulomb.report.pages.numbers import NARROW, axis_value, percent, significant, trim_zeros

MAX_POINTS = 400  # more are averaged in groups: a wide screen cannot show them apart
MAX_DOTS = 40  # curves with at most this many points also get dots
MAX_STEPS = 60  # dots of a path
MAX_CURVES = 8  # colors that can be told apart
LABEL_HEIGHT = 9  # of the label of a level, in percent of the plot
LABELS_FROM = 55  # percent of the width: labels of levels stand on the right
UNLIMITED = (-math.inf, math.inf)


@dataclass(frozen=True)
class Series:
    """A curve to draw.

    Args:
        name: shown in the legend if the chart has several curves.
        points: (x, y) or (x, y, standard deviation); a logarithmic y-axis shows no deviations. Points that are not finite,
            or not positive on a logarithmic axis, are left out.
        style: a class of the style sheet; by default the color of the curve's position, ``k0`` to ``k7``.
        dashed: for values from elsewhere, such as published ones.
        draw: ``"both"`` line and dots, ``"line"`` for formulas, or ``"dots"``.
        exponent: the fitted k of y ∝ xᵏ, shown in the legend.
        texts: tooltip of each point, in place of the default.
    """

    name: str
    points: Sequence[Sequence[float]]
    style: str = ""
    dashed: bool = False
    draw: str = "both"
    exponent: str = ""
    texts: Sequence[str] = ()


@dataclass(frozen=True)
class Level:
    """A horizontal line for comparison, such as a baseline; ``style`` is a class of the style sheet."""

    value: float
    label: str
    style: str


@dataclass(frozen=True)
class Tick:
    """A label at ``place`` percent of an axis, from the left or from the top."""

    place: float
    label: str
    style: str = ""


@dataclass(frozen=True)
class Curve:
    """A series as SVG paths: ``band`` is the range of averaged points, ``bars`` reach one standard deviation up and down.

    ``end`` is (left, top, text) of the last point.
    """

    name: str
    style: str
    line: str
    dots: str
    end: tuple[float, float, str]
    band: str = ""
    bars: str = ""
    exponent: str = ""


@dataclass
class Chart:
    """A chart that is laid out. ``kind`` is a class of the plot: ``"path"``, ``"ends"`` or empty.

    ``readout`` holds for each curve the positions and tooltips of its points, for the page's script.
    """

    title: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    levels: list[Tick]
    curves: list[Curve]
    summary: str
    note: str = ""
    readout: list[dict[str, Any]] = field(default_factory=list)
    kind: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``; a ``reversed`` one is measured from the top of the plot."""

    low: float
    high: float
    log: bool = False
    reversed: bool = False

    def place(self, value: float) -> float:
        """Returns the position in percent; 50 if the axis has no length."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        if high == low:
            return 50.0
        return 100 * (high - at) / (high - low) if self.reversed else 100 * (at - low) / (high - low)

    def ticks(self, values: Sequence[float], write: Callable[[float], str]) -> list[Tick]:
        """Returns labeled ticks at ``values``; labels have more digits than ``write`` gives where two would be the same."""
        labels = _tick_labels(values, write)
        return [Tick(round(self.place(value), 2), label) for value, label in zip(values, labels, strict=True)]


def _tick_labels(values: Sequence[float], write: Callable[[float], str]) -> list[str]:
    """Returns a label per tick. If some are equal, they are written with the digits of the smallest step between ticks."""
    labels = [trim_zeros(write(value)) for value in values]
    if len(set(labels)) == len(labels) or len(set(values)) < len(values):
        return labels
    number, _, unit = labels[0].partition(NARROW)
    if unit not in ("", "%") or not number.replace("−", "").replace(",", "").replace(".", "").isdigit():
        return labels
    step = min(abs(b - a) for a, b in itertools.pairwise(values)) * (100 if unit else 1)
    digits = max(0, math.ceil(-math.log10(step) - 1e-9))
    if unit:
        return [percent(value, digits).replace("-", "−") for value in values]
    return [f"{value:,.{digits}f}".replace("-", "−") for value in values]


@dataclass(frozen=True)
class _Point:
    """A point to draw: ``low`` and ``high`` differ where several points were averaged."""

    x: float
    y: float
    low: float
    high: float
    deviation: float
    text: str


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str = "",
    levels: Sequence[Level] = (),
    write: Callable[[float], str] = significant,
    limits: tuple[float, float] = UNLIMITED,
    y_range: tuple[float, float] | None = None,
    x_name: str = "",
    log_x: bool = False,
    log_y: bool = False,
    path: bool = False,
    ends: bool = False,
    note: str = "",
) -> Chart | None:
    """Lays out curves over common axes; returns None if there is no finite point.

    A series of more than `MAX_POINTS` points is averaged in groups; if it is the only one, a band shows the range of each
    group. At most `MAX_CURVES` series are drawn; the note names the others.

    Args:
        series: the curves.
        title, x_label, y_label, note: texts around the plot.
        levels: horizontal lines for comparison; they are always inside the plot.
        write: formats a value of the y-axis.
        limits: values that y cannot exceed, such as (0, 1) for shares: ticks stay within them.
        y_range: a fixed y-axis; points outside are left out. By default the axis covers all values.
        x_name: what x is called in tooltips; by default ``x_label``.
        log_x, log_y: logarithmic axes.
        path: a trajectory: points are joined in the given order, an arrow leads to the last one, both axes end at ticks.
        ends: the plot leaves room on its right, and each curve's last value is written there.
    """
    found = [(one, _finite(one, log_x, log_y, y_range)) for one in series]
    found = [(one, points) for one, points in found if points]
    if not found:
        return None
    notes = [note] if note else []
    if omitted := [one.name for one, _ in found[MAX_CURVES:]]:
        notes.append(f"Not drawn: {', '.join(omitted)}.")
    found = found[:MAX_CURVES]
    drawn, counts = [one for one, _ in found], [len(points) for _, points in found]
    if path:
        curves = [_thinned(points) for _, points in found]
    else:
        curves = [_averaged(points, band=len(found) == 1) for _, points in found]
        if (size := math.ceil(counts[0] / MAX_POINTS)) > 1:
            notes.insert(0, f"Line: mean of {size} steps each{'; band: their range' if len(found) == 1 else ''}.")

    shown = [value for points in curves for p in points for value in (p.low - p.deviation, p.high + p.deviation)]
    shown += [level.value for level in levels if not log_y or level.value > 0]
    if path and min(shown) >= 0:
        shown.append(0.0)
    low, high = max(limits[0], min(shown)), min(limits[1], max(shown))
    if y_range is not None:
        y_values = _log_ticks(*y_range) if log_y else ticks(*y_range, tight=True)
        down = Axis(*y_range, log_y, reversed=True)
    else:
        y_values = powers(low, high) if log_y else ticks(low, high, limits=limits)
        down = Axis(y_values[0], y_values[-1], log_y, reversed=True)
    xs = [p.x for points in curves for p in points]
    x_values = _x_ticks(xs, log_x, tight=not path)
    across = Axis(x_values[0], x_values[-1]) if path else Axis(min(xs), max(xs), log_x)

    name = x_name or x_label
    return Chart(
        title,
        x_label,
        y_label,
        across.ticks(x_values, axis_value),
        down.ticks(y_values, write),
        _levels(
            levels, down, [down.place(p.y) for points in curves for p in points if across.place(p.x) > LABELS_FROM]
        ),
        [
            _curve(one, points, across, down, write, color=f"k{i}", dotted=path or len(points) <= MAX_DOTS)
            for i, (one, points) in enumerate(zip(drawn, curves, strict=True))
        ],
        f"{title}: " + "; ".join(map(_summary, drawn, curves, counts, itertools.repeat(write))),
        " ".join(notes),
        [
            {
                "x": [round(across.place(p.x), 2) for p in points],
                "y": [round(down.place(p.y), 2) for p in points],
                "text": [p.text or _tooltip(one.name, name, p, write) for p in points],
            }
            for one, points in zip(drawn, curves, strict=True)
        ],
        "path" if path else "ends" if ends else "",
    )


def _finite(one: Series, log_x: bool, log_y: bool, y_range: tuple[float, float] | None) -> list[_Point]:
    points = []
    for i, (x, y, *rest) in enumerate(one.points):
        if not (math.isfinite(x) and math.isfinite(y)) or (log_x and x <= 0) or (log_y and y <= 0):
            continue
        deviation = 0.0 if log_y or not rest else rest[0] or 0.0
        if y_range is None or y_range[0] <= y <= y_range[1]:
            points.append(_Point(x, y, y, y, deviation, one.texts[i] if one.texts else ""))
    return points


def _thinned(points: list[_Point]) -> list[_Point]:
    every = math.ceil(len(points) / MAX_STEPS)
    return points[:-1:every] + points[-1:]


def _averaged(points: list[_Point], *, band: bool) -> list[_Point]:
    points, size = sorted(points, key=lambda p: p.x), math.ceil(len(points) / MAX_POINTS)
    if size == 1:
        return points
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    averaged = []
    for group in groups:
        ys = [p.y for p in group]
        mean = sum(ys) / len(ys)
        low, high = (min(ys), max(ys)) if band else (mean, mean)
        averaged.append(_Point(sum(p.x for p in group) / len(group), mean, low, high, 0.0, ""))
    return averaged


def _curve(
    one: Series,
    points: list[_Point],
    across: Axis,
    down: Axis,
    write: Callable[[float], str],
    *,
    color: str,
    dotted: bool,
) -> Curve:
    def at(x: float, y: float) -> str:
        return f"{10 * across.place(x):.0f} {10 * down.place(y):.0f}"

    line = "M" + "L".join(at(p.x, p.y) for p in points) if len(points) > 1 and one.draw != "dots" else ""
    band = any(p.high > p.low for p in points)
    edge = [(p.x, p.high) for p in points] + [(p.x, p.low) for p in points[::-1]]
    last = points[-1]
    return Curve(
        one.name,
        (one.style or color) + (" dashed" if one.dashed else ""),
        line,
        "".join(f"M{at(p.x, p.y)}h0" for p in points) if (dotted and one.draw != "line") or not line else "",
        (round(across.place(last.x), 2), round(down.place(last.y), 2), write(last.y)),
        "M" + "L".join(at(x, y) for x, y in edge) + "Z" if band else "",
        "".join(
            f"M{at(p.x, p.y - p.deviation)}V{10 * down.place(p.y + p.deviation):.0f}" for p in points if p.deviation
        ),
        one.exponent,
    )


def _summary(one: Series, points: list[_Point], count: int, write: Callable[[float], str]) -> str:
    name = f"{one.name} " if one.name else ""
    if points[0].text:
        return f"{name}from {points[0].text} to {points[-1].text}"
    return f"{name}from {write(points[0].y)} to {write(points[-1].y)} over {count} points"


def _tooltip(curve: str, x_name: str, point: _Point, write: Callable[[float], str]) -> str:
    deviation = f" ± {write(point.deviation)}" if point.deviation else ""
    return f"{curve + ', ' if curve else ''}{x_name} {trim_zeros(axis_value(point.x))}: {write(point.y)}{deviation}"


def _levels(levels: Sequence[Level], down: Axis, heights: Sequence[float]) -> list[Tick]:
    """Labels stand above their line, or below it if the line above is too near for both or more points are above.

    ``heights``: of the points of curves where labels stand, in percent from the top.
    """
    placed: list[Tick] = []
    places = sorted(((round(down.place(level.value), 2), level) for level in levels), key=lambda one: one[0])
    for i, (place, level) in enumerate(places):
        crowded = bool(placed) and place - placed[-1].place < 12
        free = i + 1 == len(places) or places[i + 1][0] - place > 2 * LABEL_HEIGHT
        above, under = (
            sum(low < height < low + LABEL_HEIGHT for height in heights) for low in (place - LABEL_HEIGHT, place)
        )
        below = crowded or place < 8 or (free and place < 100 - LABEL_HEIGHT and above > under)
        placed.append(Tick(place, level.label, level.style + (" below" if below else "")))
    return placed


def _x_ticks(xs: list[float], log: bool, tight: bool) -> list[float]:
    """On a logarithmic axis the values themselves if there are at most six, else round numbers between them."""
    if not log:
        return ticks(min(xs), max(xs), whole=tight and all(x == round(x) for x in xs), tight=tight)
    values = sorted(set(xs))
    if len(values) <= 6:
        return values
    inside = _log_ticks(values[0], values[-1])
    return inside if len(inside) > 1 else [values[0], values[-1]]


def ticks(
    low: float, high: float, *, whole: bool = False, tight: bool = False, limits: tuple[float, float] = UNLIMITED
) -> list[float]:
    """Returns about five round numbers (1, 2, 5 · 10ᵏ) that cover low … high, or with ``tight`` lie within it."""
    if high <= low:
        pad = abs(low) * 0.05 or 0.5
        low, high = max(limits[0], low - (0 if tight else pad)), min(limits[1], high + (0 if tight else pad))
    if high <= low:
        return [low]
    rough = (high - low) / (5 if tight else 4)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9) if tight else math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if tight else math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)] or [low]


def powers(low: float, high: float) -> list[float]:
    """Returns at most about six powers of ten that cover low … high, both positive."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    step = max(1, math.ceil((last - first) / 5))
    return [10.0**k for k in range(first, last + step, step)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within low … high; for less than 2.5 decades also their multiples by 2 and 5."""
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [float(f"{factor * 10.0**k:.6g}") for k in exponents for factor in factors]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]
