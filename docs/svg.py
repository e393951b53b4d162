"""Charts and drawings of the documentation as standalone SVG files that follow light and dark pages."""

import html
import itertools

from coulomb.report.pages.chart import Chart

COLORS = ("#3d7fc4", "#d07a1f", "#3a9560", "#b0528f", "#8a7bd0", "#8c8c8c")  # readable on white and on black
STYLE = """<style>
.coulomb-figure { color: #222; font: 15px system-ui, sans-serif; }
.coulomb-figure text { fill: currentColor; }
.coulomb-figure .grid { stroke: currentColor; stroke-opacity: .15; fill: none; }
.coulomb-figure .rule { stroke: currentColor; stroke-opacity: .55; fill: none; }
.coulomb-figure .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
.coulomb-figure .dashed { stroke-dasharray: 5 5; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) { .coulomb-figure { color: #ddd; } }
</style>"""
WIDTH, HEIGHT = 700.0, 380.0
LEFT, TOP, INNER_WIDTH, INNER_HEIGHT = 56.0, 34.0, 480.0, 294.0  # of the plot; curve names are on its right


def svg(width: float, height: float, body: str) -> str:
    """Returns a complete picture."""
    return (
        f'<svg class="coulomb-figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">'
        f"{STYLE}\n{body}\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", color: str = "", size: float = 0) -> str:
    """Returns a text at a position."""
    style = (f"fill:{color};" if color else "") + (f"font-size:{size:g}px;" if size else "")
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        + (f' style="{style}"' if style else "")
        + f">{html.escape(words)}</text>"
    )


def draw(chart: Chart | None) -> str:
    """Draws a chart with the names of the curves at their ends. A style of ``k0`` to ``k5`` selects the color."""
    assert chart is not None
    parts = [text(LEFT, 18, chart.y_label), text(LEFT + INNER_WIDTH / 2, HEIGHT - 8, chart.x_label, "middle")]
    for tick in chart.y_ticks:
        y = TOP + INNER_HEIGHT * tick.place / 100
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:.1f}h{INNER_WIDTH:g}"/>')
        parts.append(text(LEFT - 8, y + 4, tick.label, "end"))
    for tick in chart.x_ticks:
        x = LEFT + INNER_WIDTH * tick.place / 100
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP:g}v{INNER_HEIGHT:g}"/>')
        parts.append(text(x, TOP + INNER_HEIGHT + 18, tick.label, "middle"))
    box = f'x="{LEFT:g}" y="{TOP:g}" width="{INNER_WIDTH:g}" height="{INNER_HEIGHT:g}"'
    parts.append(f'<svg {box} viewBox="0 0 1000 1000" preserveAspectRatio="none" overflow="visible">')
    labels: list[tuple[float, float, str, str]] = []
    for curve in chart.curves:
        color = COLORS[int(curve.style[1])]
        dashed = " dashed" if curve.style.endswith("dashed") else ""
        parts.append(f'<path class="line{dashed}" style="stroke:{color}" d="{curve.line}"/>')
        left, top, _ = curve.end
        labels.append((TOP + INNER_HEIGHT * top / 100, LEFT + INNER_WIDTH * left / 100, curve.name, color))
    parts.append("</svg>")
    labels.sort()
    heights = list(itertools.accumulate((y for y, *_ in labels), lambda above, y: max(y, above + 17)))
    below = max(0.0, heights[-1] - (TOP + INNER_HEIGHT))
    for height, (_, x, name, color) in zip(heights, labels, strict=True):
        parts.append(text(x + 8, height - below + 4, name, color=color))
    return svg(WIDTH, HEIGHT, "\n".join(parts))
