"""What the page shows of the sampled images: neighbours, map, and the classes' marks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coulomb.diagnostics import effective_rank
from coulomb.report.collect import Run, Samples
from coulomb.report.embedding_map import Layout, layouts
from coulomb.report.neighbours import Agreement, agreement, draw_queries, nearest
from coulomb.report.wording import shorten

COLOURS, SHAPES = 7, 3  # the palette of page.css and the symbols of page.html: 21 classes can be told apart


@dataclass(frozen=True)
class Mark:
    """How a class looks on the map: colour number, shape number, and how many samples it has."""

    label: int
    name: str
    colour: int
    shape: int
    count: int


@dataclass(frozen=True)
class Gallery:
    """Everything the sections on neighbours and map draw from."""

    queries: list[int]
    neighbours: np.ndarray
    agreement: Agreement | None
    layouts: list[Layout]
    marks: list[Mark]  # in the legend's order; empty without labels
    of_sample: list[int]  # index into marks for each sample, −1: none
    effective_rank: float | None
    samples: Samples
    names: list[str]  # class name of each sample, '' unknown

    def wrong(self, query: int, other: int) -> bool:
        """True when both classes are known and differ."""
        labels = self.samples.labels
        return bool(labels[query] >= 0 and labels[other] >= 0 and labels[query] != labels[other])

    def right(self, query: int) -> tuple[int, int]:
        """(neighbours of the query's class, neighbours whose class is known); (0, 0) for a query without a label."""
        labels = self.samples.labels[self.neighbours[query]]
        if self.samples.labels[query] < 0:
            return 0, 0
        return int((labels == self.samples.labels[query]).sum()), int((labels >= 0).sum())

    def for_script(self) -> dict[str, Any]:
        """The part that the page's script needs, as JSON."""
        return {
            "places": {layout.key: layout.places.tolist() for layout in self.layouts},
            "cautions": {layout.key: layout.caution for layout in self.layouts},
            "ids": [shorten(name) for name in self.samples.ids],
            "classes": [shorten(mark.name, 60) for mark in self.marks],
            "mark": self.of_sample,
            "labels": self.samples.labels.tolist(),
            "names": [shorten(name, 60) for name in self.names]
            if len(self.marks) != len(set(self.names) - {""})
            else [],
            "neighbours": self.neighbours.tolist(),
        }


def gallery(run: Run, seed: int) -> Gallery | None:
    """Neighbours, maps and marks of the run's samples; None when there are fewer than two."""
    samples = run.samples
    if samples is None:
        return None
    if len(samples) < 2:
        run.problems.append("samples.npz holds a single image: no neighbours and no map.")
        return None
    neighbours = nearest(samples.features)
    marks = _marks(run, samples.labels)
    where = {mark.label: i for i, mark in enumerate(marks) if mark.label >= 0}
    other = len(marks) - 1 if marks and marks[-1].label < 0 else -1
    return Gallery(
        draw_queries(samples.labels, seed=seed),
        neighbours,
        agreement(neighbours, samples.labels),
        layouts(samples.features, seed),
        marks,
        [where.get(label, other if label >= 0 else -1) for label in samples.labels.tolist()],
        effective_rank(torch.from_numpy(samples.features)),
        samples,
        [run.class_name(label) if label >= 0 else "" for label in samples.labels.tolist()],
    )


def _marks(run: Run, labels: np.ndarray) -> list[Mark]:
    found, counts = np.unique(labels[labels >= 0], return_counts=True)
    room = COLOURS * SHAPES
    if len(found) > room:
        kept = np.sort(np.argsort(-counts, kind="stable")[: room - 1])
        rest = int(counts.sum() - counts[kept].sum())
        shown = [(int(found[i]), int(counts[i])) for i in kept]
    else:
        shown, rest = list(zip(found.tolist(), counts.tolist(), strict=True)), 0
    marks = [Mark(label, run.class_name(label), i % COLOURS, i // COLOURS, n) for i, (label, n) in enumerate(shown)]
    return [*marks, Mark(-1, f"{len(found) - len(shown)} other classes", COLOURS, 0, rest)] if rest else marks
