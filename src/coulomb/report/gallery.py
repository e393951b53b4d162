"""What the page shows of the sampled images: neighbours, maps, and what the marks are coloured by."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coulomb.metrics.rank import effective_rank
from coulomb.report.collect import Run, Samples
from coulomb.report.colouring import Colouring, colourings
from coulomb.report.embedding_map import Layout, layouts
from coulomb.report.neighbours import Agreement, agreement, draw_queries, nearest
from coulomb.report.wording import shorten


@dataclass(frozen=True)
class Gallery:
    """Everything the sections on neighbours and map draw from."""

    queries: list[int]
    neighbours: np.ndarray
    agreement: Agreement | None
    layouts: list[Layout]
    colourings: list[Colouring]
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

    def mark(self, sample: int) -> tuple[int, str]:
        """(symbol, classes of the style sheet) of a sample, as the page shows it at first."""
        if not self.colourings:
            return 0, "c0"
        first = self.colourings[0]
        if first.of_sample[sample] < 0:
            return 0, "none"
        mark = first.marks[first.of_sample[sample]]
        return mark.shape, f"c{mark.colour}" + (" rest" if mark.label < 0 else "")

    def for_script(self) -> dict[str, Any]:
        """The part that the page's script needs, as JSON."""
        classes = sorted(set(self.names) - {""})
        where = {name: i for i, name in enumerate(classes)} | {"": -1}
        return {
            "places": {layout.key: layout.places.tolist() for layout in self.layouts},
            "cautions": {layout.key: layout.caution for layout in self.layouts},
            "layout": self.layouts[0].key if self.layouts else "",
            "ids": [shorten(name) for name in self.samples.ids],
            "classes": [shorten(name, 60) for name in classes],
            "class": [where[name] for name in self.names],
            "labels": self.samples.labels.tolist(),
            "neighbours": self.neighbours.tolist(),
            "colourings": [
                {
                    "key": one.key,
                    "note": one.note,
                    "marks": [[shorten(m.name, 60), m.colour, m.shape, m.count, m.label < 0] for m in one.marks],
                    "of": one.of_sample,
                }
                for one in self.colourings
            ],
        }


def gallery(run: Run, seed: int) -> Gallery | None:
    """Neighbours, maps and marks of the run's samples; None when there are fewer than two held-out ones."""
    samples = run.samples
    if samples is None:
        return None
    held_out = samples.held_out
    if held_out.sum() < 2:
        run.problems.append("samples.npz holds a single image: no neighbours and no map.")
        return None
    first = int(held_out.sum())  # held-out samples come first
    neighbours = nearest(samples.features, among=held_out)
    return Gallery(
        draw_queries(samples.labels[:first], seed=seed),
        neighbours,
        agreement(neighbours[:first], samples.labels[:first]),
        layouts(samples.features, seed, run.problems),
        colourings(run, samples, neighbours, seed),
        effective_rank(torch.from_numpy(samples.features[:first])),
        samples,
        [run.class_name(label) if label >= 0 else "" for label in samples.labels.tolist()],
    )
