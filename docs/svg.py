"""Line charts and drawings as SVG that follows light and dark pages; no more than the pictures of these pages need."""

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from coulomb.pages.chart import ticks

COLOURS = ("#3d7fc4", "#d07a1f", "#3a9560", "#b0528f", "#8a7bd0", "#8c8c8c")  # readable on white and on black
STYLE = """<style>
.coulomb-figure { color: #222; font: 15px system-ui, sans-serif; }
.coulomb-figure text { fill: currentColor; }
.coulomb-figure .grid { stroke: currentColor; stroke-opacity: .15; fill: none; }
.coulomb-figure .rule { stroke: currentColor; stroke-opacity: .55; fill: none; }
.coulomb-figure .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.coulomb-figure .dashed { stroke-dasharray: 5 5; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) { .coulomb-figure { color: #ddd; } }
</style>"""


@dataclass(frozen=True)
class Curve:
    """Points under a name, which is written at the curve's end; ``dashed`` ones are limits and other lines to compare with."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


def svg(width: float, height: float, body: str) -> str:
    """A whole picture."""
    return (
        f'<svg class="coulomb-figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
        f"{STYLE}\n{body}\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = "", size: float = 0) -> str:
    """Words at a place."""
    style = (f"fill:{colour};" if colour else "") + (f"font-size:{size:g}px;" if size else "")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        + (f' style="{style}"' if style else "")
        + f">{html.escape(words)}</text>"
    )


def line_chart(
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[float, float] | None = None,
) -> str:
    """Curves in one frame, their names beside their ends."""
    width, height, left, right, top, bottom = 700.0, 380.0, 56.0, 150.0, 34.0, 52.0
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    low, high = y_range or (min(ys), max(ys))
    x_ticks = _powers(min(xs), max(xs)) if log_x else ticks(min(xs), max(xs), tight=True)
    y_ticks = _powers(low, high) if log_y else ticks(low, high, limits=y_range or (-math.inf, math.inf))
    place_x, place_y = (math.log10 if log_x else float), (math.log10 if log_y else float)
    first, last = place_x(min(xs)), place_x(max(xs))
    floor, ceiling = (place_y(low), place_y(high)) if log_y or y_range else (y_ticks[0], y_ticks[-1])

    def across(x: float) -> float:
        return left + (width - left - right) * (place_x(x) - first) / (last - first)

    def down(y: float) -> float:
        return top + (height - top - bottom) * (ceiling - place_y(y)) / (ceiling - floor)

    parts = [text(left, 18, y_label)]
    parts.append(text((left + width - right) / 2, height - 8, x_label, "middle"))
    for tick in y_ticks:
        parts.append(f'<path class="grid" d="M{left:g} {down(tick):.1f}H{width - right:g}"/>')
        parts.append(text(left - 8, down(tick) + 4, f"{tick:g}", "end"))
    for tick in x_ticks:
        parts.append(f'<path class="grid" d="M{across(tick):.1f} {top:g}V{height - bottom:g}"/>')
        parts.append(text(across(tick), height - bottom + 18, f"{tick:g}", "middle"))
    ends = []
    for curve in curves:
        drawn = [(x, y) for x, y in curve.points if y_range is None or y_range[0] <= y <= y_range[1]]
        path = "M" + "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in drawn)
        colour = COLOURS[curve.colour]
        parts.append(f'<path class="line{" dashed" * curve.dashed}" style="stroke:{colour}" d="{path}"/>')
        ends.append([down(drawn[-1][1]), across(drawn[-1][0]), curve.name, colour])
    ends.sort()
    for before, here in itertools.pairwise(ends):
        here[0] = max(here[0], before[0] + 17)
    over = max(0.0, ends[-1][0] - (height - bottom))
    parts += [text(x + 8, y - over + 4, name, colour=colour) for y, x, name, colour in ends]
    return svg(width, height, "\n".join(parts))


def _powers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from low to high; powers alone where those are many."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    found = [float(f"{f * 10.0**k:.6g}") for k in exponents for f in factors]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]
