"""Curves on two logarithmic axes, as data for the page's template: positions in percent of the plot."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """Points (x, y), all positive, with a label, a style, and the exponent k of y ∝ xᵏ if there is one."""

    points: Sequence[tuple[float, float]]
    label: str
    style: str
    exponent: str = ""


@dataclass(frozen=True)
class Tick:
    """A tick at ``place`` percent of the axis, from the left or from the top."""

    place: float
    label: str


@dataclass(frozen=True)
class Line:
    """A curve as SVG paths in a box of 1000 × 1000; ``texts`` are (left, top, text) of the points."""

    label: str
    style: str
    exponent: str
    path: str
    dots: str
    texts: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class LogChart:
    """What the template draws."""

    title: str
    unit: str
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]
    summary: str


def log_chart(
    curves: Sequence[Curve], *, title: str, unit: str, x_label: str, write: Callable[[float], str]
) -> LogChart | None:
    """The chart; None without a point. ``write`` puts a y into words."""
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return None
    xs = sorted({x for curve in curves for x, _ in curve.points})
    ys = [y for curve in curves for _, y in curve.points]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    high = max(high, low + 1)
    left, right = math.log(xs[0]), math.log(xs[-1])

    def across(x: float) -> float:
        return 50.0 if right == left else round(100 * (math.log(x) - left) / (right - left), 2)

    def down(y: float) -> float:
        return round(100 * (high - math.log10(y)) / (high - low), 2)

    lines = []
    for curve in curves:
        places = [(across(x), down(y)) for x, y in curve.points]
        path = "M" + "L".join(f"{10 * x:.0f} {10 * y:.0f}" for x, y in places)
        dots = "".join(f"M{10 * x:.0f} {10 * y:.0f}h0" for x, y in places)
        texts = tuple((*place, write(y)) for place, (_, y) in zip(places, curve.points, strict=True))
        lines.append(Line(curve.label, curve.style, curve.exponent, path, dots, texts))
    ends = (f"{c.label}, from {write(c.points[0][1])} to {write(c.points[-1][1])}" for c in curves)
    return LogChart(
        title,
        unit,
        x_label,
        tuple(Tick(across(x), f"{x:,.0f}") for x in xs),
        tuple(Tick(down(10.0**power), write(10.0**power)) for power in range(low, high + 1)),
        tuple(lines),
        f"{title} against N, both axes logarithmic: " + "; ".join(ends),
    )
