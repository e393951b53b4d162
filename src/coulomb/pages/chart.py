"""Charts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coulomb.pages.numbers import figure, position


@dataclass(frozen=True)
class Tick:
    """A tick at ``place`` percent of the axis, from the left or from the top."""

    place: float
    label: str
    style: str = ""


@dataclass(frozen=True)
class Axis:
    """One side of a chart from ``low`` to ``high``, logarithmic on wish; ``turned``: upwards, counted from the top."""

    low: float
    high: float
    log: bool = False
    turned: bool = False

    def place(self, value: float) -> float:
        """Percent along the axis; the middle where the axis has no length."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        if high == low:
            return 50.0
        return 100 * (high - at) / (high - low) if self.turned else 100 * (at - low) / (high - low)

    def marks(self, values: Sequence[float], write: Callable[[float], str]) -> list[Tick]:
        """Ticks at ``values``."""
        return [Tick(round(self.place(value), 2), short(write(value))) for value in values]


def ticks(
    low: float,
    high: float,
    *,
    whole: bool = False,
    tight: bool = False,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> list[float]:
    """Round numbers (1, 2, 5 · 10ᵏ) that cover low … high, or with ``tight`` lie within it; about five."""
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
    """Powers of ten that cover low … high, both positive; at most about six of them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    step = max(1, math.ceil((last - first) / 5))
    return [10.0**k for k in range(first, last + step, step)]


def short(text: str) -> str:
    """Tick labels without needless decimals: '6.00' → '6', '50.0 %' → '50 %'."""
    number, space, unit = text.partition("\u202f")
    if "." in number and "·" not in number:
        number = number.rstrip("0").rstrip(".")
    return number + space + unit


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
