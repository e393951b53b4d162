"""Charts of the embeddings: alignment and uniformity, spectrum, and histograms of similarities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.ground.reading import finite
from coulomb.report.collect import RunData
from coulomb.report.pages.chart import Chart, Series, line_chart
from coulomb.report.pages.numbers import axis_value, percent, significant, trim_zeros

MIN_SINGULAR = 1e-4  # relative to the largest; smaller singular values are rounding errors
SIMILARITY_GROUPS = {
    "negative": "negatives",
    "same_class": "negatives of the same class",
    "hardest": "hardest negative",
    "positive": "two views of an image",
}
MAX_EPOCHS = 30


def trajectory(run: RunData, name: str = "", style: str = "trained") -> Series:
    """Returns (uniformity, alignment) of the epochs that have both, as a series with tooltips."""
    points, texts = [], []
    for line in run.measures:
        epoch, u, a = (finite(line.get(key)) for key in ("epoch", "uniformity", "alignment"))
        if epoch is not None and u is not None and a is not None:
            points.append((u, a))
            where = f"uniformity {significant(u)}, alignment {significant(a)}"
            texts.append(f"{name + ', ' if name else ''}epoch {axis_value(epoch)}: {where}")
    return Series(name, points, style, texts=texts)


def plane_chart(trajectories: Sequence[Series]) -> Chart | None:
    """Alignment over uniformity: a dot per measured epoch, an arrow to the last one."""
    return line_chart(
        trajectories,
        title="Alignment and uniformity",
        x_label="uniformity (lower: more evenly spread)",
        y_label="alignment: squared distance between two views of an image",
        path=True,
        note="Each dot is an epoch; the arrow leads to the last one. Good embeddings are low and to the left: views of an "
        "image close together, images far apart.",
    )


def spectrum_chart(run: RunData) -> Chart | None:
    """Singular values of the embeddings relative to the largest, for the first and the last epoch that recorded them."""
    recorded = [(line, values) for line in run.measures if (values := read_spectrum(line))]
    if not recorded:
        return None
    ends = [recorded[0], recorded[-1]] if len(recorded) > 1 else recorded
    chart = spectra_chart(
        "Spectrum of the embeddings",
        [
            Series(f"epoch {axis_value(finite(line.get('epoch')))}", values, style)
            for (line, values), style in zip(ends, ["random_init", "trained"][-len(ends) :], strict=True)
        ],
    )
    if chart is not None:
        chart.note = "Steep: few dimensions carry all the variance (dimensional collapse). Flat: all are used."
    return chart


def spectra_chart(title: str, series: Sequence[Series]) -> Chart | None:
    """Spectra on a logarithmic axis."""
    return line_chart(
        series,
        title=title,
        x_label="dimension, by decreasing singular value",
        x_name="dimension",
        y_label="singular value, relative to the largest",
        limits=(MIN_SINGULAR, 1.0),
        log_y=True,
    )


def read_spectrum(line: dict[str, Any]) -> list[tuple[float, float]]:
    """Returns (1, σ₁/σ₁), (2, σ₂/σ₁), …; empty if the line has no spectrum."""
    values = line.get("spectrum")
    numbers = [finite(value) for value in values] if isinstance(values, list) else []
    return [(float(i), max(MIN_SINGULAR, value)) for i, value in enumerate(numbers, 1) if value is not None]


@dataclass(frozen=True)
class Snapshot:
    """Histograms of one epoch: a path per group of `SimilaritySection.groups`, and a sentence."""

    epoch: str
    paths: list[str]
    sentence: str


@dataclass(frozen=True)
class SimilaritySection:
    """Histograms of the similarities of held-out pairs by epoch; the page first shows the last snapshot."""

    groups: dict[str, str]
    snapshots: list[Snapshot]
    ticks: list[tuple[float, str]]


def similarity_section(run: RunData) -> SimilaritySection | None:
    """Reads the histograms of the live evaluation; returns None if there is none."""
    recorded = [(line, shares) for line in run.measures if (shares := _shares(line.get("similarity_histogram")))]
    if not recorded:
        return None
    chosen = np.unique(np.linspace(0, len(recorded) - 1, min(MAX_EPOCHS, len(recorded))).round().astype(int))
    recorded = [recorded[i] for i in chosen]
    groups = {key: name for key, name in SIMILARITY_GROUPS.items() if any(key in shares for _, (_, shares) in recorded)}
    highest = max(float(share.max()) for _, (_, shares) in recorded for share in shares.values())
    snapshots = [
        Snapshot(
            axis_value(finite(line.get("epoch"))),
            [_outline(edges, shares[key], highest) if key in shares else "" for key in groups],
            _sentence(line),
        )
        for line, (edges, shares) in recorded
    ]
    cosines = (-1.0, -0.5, 0.0, 0.5, 1.0)
    return SimilaritySection(groups, snapshots, [(50 + 50 * c, trim_zeros(significant(c))) for c in cosines])


def _shares(histogram: Any) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
    """Returns the edges, and for each group the share of its pairs in every bin."""
    if not isinstance(histogram, dict):
        return None
    try:
        edges = np.asarray(histogram["edges"], dtype=float)
        counts = {
            key: np.asarray(histogram[key], dtype=float) for key in SIMILARITY_GROUPS if histogram.get(key) is not None
        }
    except (KeyError, TypeError, ValueError):
        return None
    if edges.ndim != 1 or not np.isfinite(edges).all():
        return None
    shares = {
        key: n / n.sum()
        for key, n in counts.items()
        if n.ndim == 1 and len(n) + 1 == len(edges) and np.isfinite(n).all() and (n >= 0).all() and n.sum() > 0
    }
    return (edges, shares) if shares else None


def _outline(edges: np.ndarray, shares: np.ndarray, highest: float) -> str:
    """A stepped SVG path over cosines −1 … 1 in a 1000 × 1000 box, without the empty bins at both ends."""
    filled = np.flatnonzero(shares)
    first, last = int(filled[0]), int(filled[-1])
    x, y = 500 + 500 * edges, 1000 - 1000 * shares / highest
    steps = "".join(f"V{y[i]:.0f}H{x[i + 1]:.0f}" for i in range(first, last + 1))
    return f"M{x[first]:.0f} 1000{steps}V1000Z"


def _sentence(line: dict[str, Any]) -> str:
    names = {"positive": "two views of an image", "negative": "negatives", "hardest": "hardest negative"}
    means = [
        f"{name} {significant(value)}"
        for key, name in names.items()
        if (value := finite(line.get(f"{key}_similarity"))) is not None
    ]
    sentences = [f"Mean cosine: {', '.join(means)}."] if means else []
    if (separation := finite(line.get("separation"))) is not None:
        sentences.append(f"A pair of views is more similar than a pair of images in {percent(separation)} of cases.")
    return " ".join(sentences)
