"""Where a run's embeddings are in the plane of uniformity and alignment, epoch by epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coulomb.report.axes import Axis, ticks
from coulomb.report.chart import Chart, Curve
from coulomb.report.collect import Run, finite
from coulomb.report.wording import figure, position

MAX_DOTS = 60


@dataclass(frozen=True)
class Trajectory:
    """One run's way: (epoch, uniformity, alignment) in order."""

    name: str
    points: Sequence[tuple[float, float, float]]
    style: str


def trajectory(run: Run, name: str = "", style: str = "trained") -> Trajectory:
    """From the lines of live evaluation that have both figures."""
    found = [tuple(finite(line.get(key)) for key in ("epoch", "uniformity", "alignment")) for line in run.measures]
    return Trajectory(
        name, [(e, u, a) for e, u, a in found if e is not None and u is not None and a is not None], style
    )


def plane_chart(ways: Sequence[Trajectory]) -> Chart | None:
    """A dot for every measured epoch, an arrow to the last one; None when nothing was measured."""
    drawn = [way for way in ways if way.points]
    if not drawn:
        return None
    spots = [spot for way in drawn for spot in way.points]
    x_ticks = ticks(min(u for _, u, _ in spots), max(u for _, u, _ in spots))
    y_ticks = ticks(0.0, max(a for *_, a in spots), limits=(0.0, math.inf))
    across, down = Axis(x_ticks[0], x_ticks[-1]), Axis(y_ticks[0], y_ticks[-1], turned=True)
    curves, readout = [], []
    for way in drawn:
        places = [(across.place(u), down.place(a)) for _, u, a in way.points]
        every = math.ceil(len(places) / MAX_DOTS)
        kept = sorted({*range(0, len(places), every), len(places) - 1})
        line = "M" + "L".join(f"{10 * places[i][0]:.0f} {10 * places[i][1]:.0f}" for i in kept) if len(kept) > 1 else ""
        dots = "".join(f"M{10 * places[i][0]:.0f} {10 * places[i][1]:.0f}h0" for i in kept)
        curves.append(Curve(way.name, way.style, line, "", dots))
        start = f"{way.name}, " if way.name else ""
        readout.append(
            {
                "x": [round(places[i][0], 2) for i in kept],
                "y": [round(places[i][1], 2) for i in kept],
                "text": [
                    f"{start}epoch {position(e)}: uniformity {figure(u)}, alignment {figure(a)}"
                    for e, u, a in (way.points[i] for i in kept)
                ],
            }
        )
    return Chart(
        "Alignment and uniformity",
        "uniformity (lower: more evenly spread)",
        "alignment: squared distance between two views of an image",
        across.marks(x_ticks, figure),
        down.marks(y_ticks, figure),
        [],
        curves,
        "Alignment and uniformity: "
        + "; ".join(
            f"{way.name + ' ' if way.name else ''}from uniformity {figure(way.points[0][1])}, alignment "
            f"{figure(way.points[0][2])} to {figure(way.points[-1][1])}, {figure(way.points[-1][2])}"
            for way in drawn
        ),
        "Each dot is a measured epoch, the arrow leads to the last. Good embeddings are low and to the left: views of an "
        "image close together, images far apart.",
        readout,
        "plane",
    )
