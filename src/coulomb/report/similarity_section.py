"""Histograms of the similarities of held-out view pairs, epoch by epoch, as SVG paths."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.report.axes import short
from coulomb.report.collect import Run, finite
from coulomb.report.wording import figure, percent, position

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
