"""Groups that color the marks of the map."""

from dataclasses import dataclass

import numpy as np

from coulomb.report.collect import RunData, Samples
from coulomb.report.pages.numbers import percent

COLORS, SHAPES = 7, 3  # colors of page.css and symbols of report_macros.html: 21 groups can be told apart


@dataclass(frozen=True)
class Mark:
    """A group on the map: its name, color number, shape number and size. Label −1 stands for all other groups."""

    label: int
    name: str
    color: int
    shape: int
    count: int


@dataclass(frozen=True)
class Coloring:
    """``marks`` in the order of the legend; ``of_sample``: an index into ``marks`` per sample, −1 for none."""

    key: str
    marks: list[Mark]
    of_sample: list[int]
    note: str = ""


def map_colorings(run: RunData, samples: Samples, neighbors: np.ndarray) -> list[Coloring]:
    """Returns the colorings that the samples allow: by class, cluster, agreement of neighbors, and split."""
    colorings = [
        _by_class(run, samples.labels),
        _by_cluster(run, samples),
        _by_agreement(samples, neighbors),
        _by_split(samples),
    ]
    return [coloring for coloring in colorings if coloring is not None]


def _by_class(run: RunData, labels: np.ndarray) -> Coloring | None:
    if not (labels >= 0).any():
        return None
    names = {int(label): run.class_name(int(label)) for label in np.unique(labels[labels >= 0])}
    return _coloring("class", group_marks(labels, names), labels)


def _by_cluster(run: RunData, samples: Samples) -> Coloring | None:
    """The evaluation's k-means clusters, named by their majority class."""
    clusters = samples.clusters
    if clusters is None:
        return None
    k = int(clusters.max()) + 1
    names = {c: f"{c + 1}{_majority(run, samples.labels[clusters == c])}" for c in range(k)}
    note = f"k-means with {k} clusters of these samples; numbered by size"
    labeled = bool((samples.labels >= 0).any())
    return _coloring(
        "cluster", group_marks(clusters, names), clusters, note + (" and named by majority class." if labeled else ".")
    )


def _majority(run: RunData, labels: np.ndarray) -> str:
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    if len(classes) == 0:
        return ""
    most = int(counts.argmax())
    return f": mostly {run.class_name(int(classes[most]))} ({percent(counts[most] / len(labels), 0)})"


def _by_agreement(samples: Samples, neighbors: np.ndarray) -> Coloring | None:
    """Whether at least half of an image's labeled neighbors have its class."""
    around, known = samples.labels[neighbors], samples.labels[neighbors] >= 0
    comparable = (samples.labels >= 0) & known.any(1)
    if not comparable.any():
        return None
    agree = ((around == samples.labels[:, None]) & known).sum(1) * 2 >= known.sum(1)
    groups = np.where(comparable, np.where(agree, 0, 1), -1)
    marks = [
        Mark(0, "same class", 0, 0, int((groups == 0).sum())),
        Mark(1, "another class", 3, 2, int((groups == 1).sum())),
    ]
    note = f"The class of at least half of an image’s {neighbors.shape[1]} nearest neighbors."
    return _coloring("neighbors", marks, groups, note)


def _by_split(samples: Samples) -> Coloring | None:
    n, held_out = len(samples), samples.held_out
    if held_out == n:
        return None
    marks = [Mark(0, "held out", 0, 0, held_out), Mark(1, "training images", 1, 1, n - held_out)]
    note = "A sample of the training images; neighbors are held-out images only."
    return _coloring("split", marks, np.where(np.arange(n) < held_out, 0, 1), note)


def group_marks(groups: np.ndarray, names: dict[int, str]) -> list[Mark]:
    """Returns a mark per group (≥ 0); if there are too many, the largest ones and one for all others."""
    labels, counts = np.unique(groups[groups >= 0], return_counts=True)
    most = COLORS * SHAPES
    if len(labels) > most:
        kept = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
        rest = int(counts.sum() - counts[kept].sum())
        shown = [(int(labels[i]), int(counts[i])) for i in kept]
    else:
        shown, rest = list(zip(labels.tolist(), counts.tolist(), strict=True)), 0
    marks = [Mark(label, names[label], i % COLORS, i // COLORS, n) for i, (label, n) in enumerate(shown)]
    return [*marks, Mark(-1, f"{len(labels) - len(shown)} other classes", COLORS, 0, rest)] if rest else marks


def _coloring(key: str, marks: list[Mark], groups: np.ndarray, note: str = "") -> Coloring:
    index = {mark.label: i for i, mark in enumerate(marks) if mark.label >= 0}
    other = len(marks) - 1 if marks[-1].label < 0 else -1
    of_sample = [index.get(group, other if group >= 0 else -1) for group in groups.tolist()]
    return Coloring(key, marks, of_sample, note)
