"""Which classes are taken for which: by the kNN of the evaluation, or for older runs among the samples of the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.report.collect import Run, Samples, finite
from coulomb.report.wording import percent, plural

MAX_CLASSES = 30  # a larger matrix is not readable; the list of mistakes stays
MAX_MISTAKES = 10
NEIGHBOURS = 10


@dataclass(frozen=True)
class Confusion:
    """``rows[i][j]``: (share of class i taken for class j, words); empty for too many classes."""

    names: list[str]
    rows: list[list[tuple[float, str]]]
    mistakes: list[tuple[str, str, str]]  # of, taken for, how often
    note: str


def confusion(run: Run, neighbours: np.ndarray | None) -> Confusion | None:
    """None without labels. ``neighbours`` [n, k] of the held-out samples stand in where the evaluation kept no counts."""
    counts = _from_evaluation(run.evaluation)
    note = "By the k nearest training images of every held-out image, as in the evaluation."
    if not counts and run.samples is not None and neighbours is not None:
        counts = _among_samples(run.samples, neighbours)
        note = (
            f"By the {neighbours.shape[1]} nearest among the samples of this page, not by the evaluation: this run was "
            "evaluated before it kept who is taken for whom."
        )
    classes = sorted(counts)
    if len(classes) < 2:
        return None
    totals = {label: sum(row.values()) for label, row in counts.items()}
    found = [(n, label, other) for label, row in counts.items() for other, n in row.items() if n and other != label]
    found.sort(key=lambda entry: (-entry[0] / totals[entry[1]], entry[1], entry[2]))
    mistakes = [
        (run.class_name(label), run.class_name(other), f"{n} of {totals[label]}")
        for n, label, other in found[:MAX_MISTAKES]
    ]
    rows = [[_cell(run, counts, totals, label, other) for other in classes] for label in classes]
    return Confusion(
        [run.class_name(label) for label in classes], rows if len(classes) <= MAX_CLASSES else [], mistakes, note
    )


def _cell(
    run: Run, counts: Mapping[int, Mapping[int, int]], totals: Mapping[int, int], label: int, other: int
) -> tuple[float, str]:
    n = counts[label].get(other, 0)
    share = n / totals[label] if totals[label] else 0.0
    images = plural(totals[label], "image")
    return round(
        share, 3
    ), f"{run.class_name(label)} taken for {run.class_name(other)}: {n} of {images}, {percent(share)}"


def _from_evaluation(evaluation: dict[str, Any]) -> dict[int, dict[int, int]]:
    trained = evaluation.get("trained")
    table = trained.get("per_class") if isinstance(trained, dict) else None
    counts = {}
    for row in table if isinstance(table, list) else ():
        taken = row.get("taken_for") if isinstance(row, dict) else None
        label = finite(row.get("label")) if isinstance(row, dict) else None
        if isinstance(taken, dict) and label is not None:
            counts[int(label)] = {int(k): int(n) for k, n in taken.items() if k.lstrip("-").isdigit() and finite(n)}
    return counts if any(counts.values()) else {}


def _among_samples(samples: Samples, neighbours: np.ndarray) -> dict[int, dict[int, int]]:
    """The most frequent class of an image's neighbours; of equal ones the nearest's."""
    labels, counts = samples.labels, dict[int, dict[int, int]]()
    for i in np.flatnonzero((labels >= 0) & samples.held_out):
        around = labels[neighbours[i]]
        around = around[around >= 0]
        if len(around) == 0:
            continue
        found, first, often = np.unique(around, return_index=True, return_counts=True)
        guess = int(found[np.lexsort((first, -often))[0]])
        row = counts.setdefault(int(labels[i]), {})
        row[guess] = row.get(guess, 0) + 1
    return counts
