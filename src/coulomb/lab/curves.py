"""Several curves in one chart, as places in percent for the page template; like the report's, of which it takes the ticks."""

import math
from dataclasses import dataclass
from typing import Any

from coulomb.report.chart import Tick, ticks
from coulomb.report.wording import figure, percent

MOST_CURVES = 8  # colours that can be told apart; the page lists what is left out


@dataclass(frozen=True)
class Curve:
    """A line with dots: SVG paths in a 1000 × 1000 box, a colour number; ``bars`` reach one deviation up and down."""

    name: str
    colour: int
    line: str
    dots: str
    bars: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """What the template draws."""

    title: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    curves: list[Curve]
    summary: str
    notes: list[str]


def chart_of(found: dict[str, Any]) -> Chart | None:
    """A chart of the result's ``{"title", "x_label", "y_label", "log_x", "percent", "series": [{"name", "points"}]}``.

    A point is (x, y) or (x, y, deviation). Points that are not finite (and on a logarithmic axis not positive) are left out;
    None where nothing is left. Options: ``path``: the points are joined in their own order and the last is the end, not by
    x; ``note``: a line below. A series may be ``dashed`` (not measured here), ``smooth`` (no
    dots) or ``scattered`` (no line).
    """
    log_x, write = bool(found.get("log_x")), percent if found.get("percent") else figure
    path = bool(found.get("path"))
    dashed, smooth, scattered = (
        {one["name"] for one in found["series"] if one.get(how)} for how in ("dashed", "smooth", "scattered")
    )
    series = [(one["name"], _finite(one["points"], log_x)) for one in found["series"]]
    series = [(name, points if path else sorted(points)) for name, points in series if points]
    if not series:
        return None
    shown = series[:MOST_CURVES]
    xs = [x for _, points in shown for x, _, _ in points]
    ys = [y + side * std for _, points in shown for _, y, std in points for side in (-1, 1)]
    place = math.log10 if log_x else float
    left, right = place(min(xs)), place(max(xs))
    limits = (0.0, 1.0) if found.get("percent") else (-math.inf, math.inf)
    y_ticks = ticks(min(ys), max(ys), limits=limits)
    bottom, top = y_ticks[0], y_ticks[-1]

    def across(x: float) -> float:
        return 50.0 if right == left else 100 * (place(x) - left) / (right - left)

    def down(y: float) -> float:
        return 50.0 if top == bottom else 100 * (top - y) / (top - bottom)

    curves = []
    for colour, (name, points) in enumerate(shown):
        places = [(10 * across(x), 10 * down(y)) for x, y, _ in points]
        line = (
            "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in places) if len(places) > 1 and name not in scattered else ""
        )
        dotted = [] if name in smooth and line else places[-1:] if path else places
        dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in dotted)
        bars = "".join(
            f"M{10 * across(x):.0f} {10 * down(y - std):.0f}V{10 * down(y + std):.0f}" for x, y, std in points if std
        )
        curves.append(Curve(name, colour, line, dots, bars, name in dashed))
    left_out = [name for name, _ in series[MOST_CURVES:]]
    return Chart(
        found["title"],
        found["x_label"],
        found["y_label"],
        [Tick(round(across(x), 2), _written(x)) for x in _x_ticks(xs, log_x)],
        [Tick(round(down(y), 2), write(y)) for y in y_ticks],
        curves,
        f"{found['title']}: " + "; ".join(f"{name} ends at {write(points[-1][1])}" for name, points in shown),
        [text for text in (found.get("note"), f"Not drawn: {', '.join(left_out)}." if left_out else "") if text],
    )


def _x_ticks(xs: list[float], log_x: bool) -> list[float]:
    """On a logarithmic axis the values themselves where they are few, else powers of ten."""
    if not log_x:
        return ticks(min(xs), max(xs), tight=True)
    values = sorted(set(xs))
    if len(values) <= 6:
        return values
    powers = [10.0**k for k in range(math.ceil(math.log10(values[0])), math.floor(math.log10(values[-1])) + 1)]
    return powers if len(powers) > 1 else [values[0], values[-1]]


def _finite(points: list[Any], log_x: bool) -> list[tuple[float, float, float]]:
    there = [(x, y, std or 0.0) for x, y, std in ((*point, 0.0)[:3] for point in points)]
    return [(x, y, std) for x, y, std in there if math.isfinite(x) and math.isfinite(y) and (x > 0 or not log_x)]


def _written(x: float) -> str:
    return f"{x:,.0f}" if x >= 1 and abs(x - round(x)) < 1e-9 else figure(x, 2).rstrip("0").rstrip(".") if x else "0"
