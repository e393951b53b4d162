"""Charts of the embeddings: alignment and uniformity, spectrum, similarity histograms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.pages.chart import Axis, Chart, Curve, Series, lines_chart, short, ticks
from coulomb.pages.numbers import figure, percent, position
from coulomb.report.collect import Run, finite

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


LEAST = 1e-4  # smaller values are noise of the arithmetic


def spectrum_chart(run: Run) -> Chart | None:
    """Of the first and the last epoch that recorded one; None where none did."""
    found = [(line, values) for line in run.measures if (values := spectrum_of(line))]
    if not found:
        return None
    ends = [found[0], found[-1]] if len(found) > 1 else [found[-1]]
    chart = lines_chart(
        [
            Series(f"epoch {position(finite(line.get('epoch')))}", values, style)
            for (line, values), style in zip(ends, ["random_init", "trained"][-len(ends) :], strict=True)
        ],
        title="Spectrum of the embeddings",
        x_label="direction, the widest first",
        y_label="singular value, the largest = 1",
        limits=(LEAST, 1.0),
        log_y=True,
        x_name="direction",
    )
    if chart is not None:
        chart.note = (
            "A steep fall means that few directions carry everything (dimensional collapse); flat: all are used."
        )
    return chart


def spectrum_of(line: dict) -> list[tuple[float, float]]:
    """(1, σ₁/σ₁), (2, σ₂/σ₁), … as far as they are numbers."""
    values = line.get("spectrum")
    if not isinstance(values, list):
        return []
    numbers = [(i + 1, number) for i, value in enumerate(values) if (number := finite(value)) is not None]
    return [(float(i), max(LEAST, number)) for i, number in numbers]


GROUPS = {
    "negative": "other images",
    "same_class": "other images of the class",
    "hardest": "the nearest other image",
    "positive": "two views of an image",
}
MAX_EPOCHS = 30


@dataclass(frozen=True)
class Snapshot:
    """One epoch: a path for each group, in the order of ``SimilaritySection.groups``, and a sentence."""

    epoch: str
    paths: list[str]
    said: str


@dataclass(frozen=True)
class SimilaritySection:
    """Ready for the template; the last snapshot is shown first."""

    groups: dict[str, str]
    snapshots: list[Snapshot]
    ticks: list[tuple[float, str]]


def similarity_section(run: Run) -> SimilaritySection | None:
    """From the lines of live evaluation; None where no line holds a histogram that can be read."""
    found = [(line, shares) for line in run.measures if (shares := _shares(line.get("similarity_histogram")))]
    if not found:
        return None
    kept = np.unique(np.linspace(0, len(found) - 1, min(MAX_EPOCHS, len(found))).round().astype(int))
    found = [found[i] for i in kept]
    groups = {key: name for key, name in GROUPS.items() if any(key in shares[1] for _, shares in found)}
    highest = max(float(share.max()) for _, (_, shares) in found for share in shares.values())
    snapshots = [
        Snapshot(
            position(finite(line.get("epoch"))),
            [_path(edges, shares[key], highest) if key in shares else "" for key in groups],
            _said(line),
        )
        for line, (edges, shares) in found
    ]
    return SimilaritySection(
        groups, snapshots, [(50 + 50 * at, short(figure(at))) for at in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    )


def _shares(histogram: Any) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
    """Edges, and each group's share of its pairs in every bin."""
    if not isinstance(histogram, dict):
        return None
    try:
        edges = np.asarray(histogram["edges"], dtype=float)
        counts = {key: np.asarray(histogram[key], dtype=float) for key in GROUPS if histogram.get(key) is not None}
    except (KeyError, TypeError, ValueError):
        return None
    if edges.ndim != 1 or not np.isfinite(edges).all():
        return None
    good = {
        key: n / n.sum()
        for key, n in counts.items()
        if n.ndim == 1 and len(n) + 1 == len(edges) and np.isfinite(n).all() and (n >= 0).all() and n.sum() > 0
    }
    return (edges, good) if good else None


def _path(edges: np.ndarray, shares: np.ndarray, highest: float) -> str:
    """A stepped outline over cosines −1 … 1 in a 1000 × 1000 box; empty bins at the ends are left out."""
    full = np.flatnonzero(shares)
    first, last = int(full[0]), int(full[-1])
    x, y = 500 + 500 * edges, 1000 - 1000 * shares / highest
    steps = "".join(f"V{y[i]:.0f}H{x[i + 1]:.0f}" for i in range(first, last + 1))
    return f"M{x[first]:.0f} 1000{steps}V1000Z"


def _said(line: dict[str, Any]) -> str:
    told = []
    means = [
        f"{name} {figure(value)}"
        for name, key in (
            ("two views of an image", "positive"),
            ("other images", "negative"),
            ("the nearest", "hardest"),
        )
        if (value := finite(line.get(f"{key}_similarity"))) is not None
    ]
    if means:
        told.append(f"Mean cosine: {', '.join(means)}.")
    if (separation := finite(line.get("separation"))) is not None:
        told.append(f"A view pair is more similar than a pair of other images in {percent(separation)} of cases.")
    return " ".join(told)
