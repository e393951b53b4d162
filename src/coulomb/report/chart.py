"""Line charts as data for the page template: positions in percent of the plot, so that CSS sets size, colour and type.

Charts are SVG paths in a stretched 1000 × 1000 box with labels as ordinary text around them: they keep readable letters
on a phone, follow light and dark, print, and need no script.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from coulomb.report.wording import figure

Points = Sequence[tuple[float, float]]
MAX_POINTS = 400  # more than a wide screen can show apart


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with: baseline, no-signal value."""

    value: float
    label: str
    style: str


@dataclass(frozen=True)
class Tick:
    """A tick at ``place`` percent of the axis, from the left or from the top."""

    place: float
    label: str
    style: str = ""


@dataclass
class Chart:
    """What the template draws."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    levels: list[Tick]
    line: str
    band: str
    dots: str
    style: str
    summary: str
    note: str = ""
    readout: dict[str, Any] = field(default_factory=dict)  # for the script: places and texts of the points


def line_chart(
    points: Points,
    *,
    title: str,
    x_label: str,
    y_label: str = "",
    levels: Sequence[Level] = (),
    style: str = "trained",
    write: Callable[[float], str] = figure,
    limits: tuple[float, float] = (-math.inf, math.inf),
    x_name: str = "step",
) -> Chart | None:
    """One curve of finite ``points`` against horizontal ``levels``; None when there is no finite point.

    More than ``MAX_POINTS`` points are averaged in groups and the range within each group is drawn as a band.
    """
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if not finite:
        return None
    group = math.ceil(len(finite) / MAX_POINTS)
    groups = [finite[i : i + group] for i in range(0, len(finite), group)]
    xs = [sum(x for x, _ in part) / len(part) for part in groups]
    ys = [sum(y for _, y in part) / len(part) for part in groups]
    lows, highs = [min(y for _, y in part) for part in groups], [max(y for _, y in part) for part in groups]
    y_ticks = ticks(
        max(limits[0], min([*lows, *(level.value for level in levels)])),
        min(limits[1], max([*highs, *(level.value for level in levels)])),
        limits=limits,
    )
    x_ticks = ticks(min(xs), max(xs), whole=True, tight=True)
    left, right = min(xs), max(xs)
    bottom, top = y_ticks[0], y_ticks[-1]

    def across(x: float) -> float:
        return 50.0 if right == left else 100 * (x - left) / (right - left)

    def down(y: float) -> float:
        return 100 * (top - y) / (top - bottom)

    def path(places: list[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{10 * across(x):.0f} {10 * down(y):.0f}" for x, y in places)

    few = len(xs) <= 40
    readout = {
        "x": [round(across(x), 2) for x in xs],
        "y": [round(down(y), 2) for y in ys],
        "text": [f"{x_name} {figure(x) if x % 1 else f'{x:,.0f}'}: {write(y)}" for x, y in zip(xs, ys, strict=True)],
    }
    return Chart(
        title,
        x_label,
        y_label,
        [Tick(round(across(x), 2), figure(x) if x % 1 else f"{x:,.0f}") for x in x_ticks],
        [Tick(round(down(y), 2), _short(write(y))) for y in y_ticks],
        _levels(levels, down),
        path(list(zip(xs, ys, strict=True))) if len(xs) > 1 else "",
        path([*zip(xs, highs, strict=True), *zip(xs[::-1], lows[::-1], strict=True)]) + "Z" if group > 1 else "",
        "".join(f"M{10 * across(x):.0f} {10 * down(y):.0f}h0" for x, y in zip(xs, ys, strict=True)) if few else "",
        style,
        f"{title}: from {write(ys[0])} to {write(ys[-1])} over {len(finite)} points",
        f"Line: mean of {group} steps each; band: their smallest and largest." if group > 1 else "",
        readout,
    )


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
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9) if tight else math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if tight else math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)] or [low]


def _levels(levels: Sequence[Level], down: Callable[[float], float]) -> list[Tick]:
    """Labels stand above their line; below it where the line above is too near for both."""
    placed: list[Tick] = []
    for level in sorted(levels, key=lambda level: down(level.value)):
        place = round(down(level.value), 2)
        crowded = bool(placed) and place - placed[-1].place < 12
        placed.append(Tick(place, level.label, level.style + (" below" if crowded or place < 8 else "")))
    return placed


def _short(text: str) -> str:
    """Tick labels without needless decimals: '6.00' → '6', '50.0 %' → '50 %'."""
    number, space, unit = text.partition("\u202f")
    if "." in number and "·" not in number:
        number = number.rstrip("0").rstrip(".")
    return number + space + unit
