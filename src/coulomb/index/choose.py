"""Which images to label next: typical ones of many clusters for small budgets, or a cover of all images."""

from typing import Literal

import numpy as np
import torch

from coulomb.ground.checked import require_option
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.index.cluster import kmeans
from coulomb.metrics.nearest import neighbors
from coulomb.metrics.rows import blocks, check_rows, unit_rows

MOST_CLUSTERS = 500  # as in Hacohen et al. (2022)
TYPICAL_NEIGHBORS = 20  # likewise

Strategy = Literal["typical", "diverse"]
STRATEGIES = ("typical", "diverse")


def choose_rows(
    x: np.ndarray, number: int, labeled: np.ndarray | None = None, *, strategy: Strategy = "typical", seed: int = 0
) -> np.ndarray:
    """Returns the positions of ``number`` images to label next, the most useful first, int64 [number].

    ``"typical"``: TypiClust (Hacohen et al., 2022, "Active learning on a budget"). Images are divided into as many
    clusters as there will be labels (at most 500); of the clusters with the fewest labels, the largest first, the image
    with the largest mean cosine to its 20 nearest of the cluster is taken. Best for up to some hundreds of labels.
    ``"diverse"``: k-center greedy (Sener and Savarese, 2018) on the sphere: again and again the image that is least
    similar to all that are labeled or taken. It covers everything, outliers first.

    The same seed gives the same images. Images in ``labeled`` are never returned.

    Args:
        x: features [N,D]; a memory-mapped array is read in blocks.
        number: how many.
        labeled: positions that have a label.
        strategy: ``"typical"`` or ``"diverse"``.
        seed: seed of the clusters, and of the first image of ``"diverse"`` without labels.

    Raises:
        InputError: fewer than ``number`` images without a label, an unknown strategy, NaN or infinite values.
    """
    check_rows(x)
    require_option("strategy", strategy, str, choices=STRATEGIES)
    known = np.zeros(len(x), bool)
    if labeled is not None:
        known[labeled] = True
    if known.all():
        raise InputError(
            "number: every image has a label already; for an index without them, build it with labels=False (--labels none)."
        )
    if not 1 <= number <= len(x) - known.sum():
        raise InputError(f"number={number}: must be from 1 to {int((~known).sum())}, the images without a label.")
    return (_typical if strategy == "typical" else _diverse)(x, number, known, seed)


def _typical(x: np.ndarray, number: int, known: np.ndarray, seed: int) -> np.ndarray:
    count = int(min(number + known.sum(), MOST_CLUSTERS, len(x)))
    cluster = kmeans(x, count, seed=seed).cluster
    sizes = np.bincount(cluster)
    labels = np.bincount(cluster, weights=known, minlength=len(sizes)).astype(int)
    left = np.bincount(cluster, weights=~known, minlength=len(sizes)).astype(int)
    ranked: dict[int, list[int]] = {}  # rows of a cluster without a label, the most typical last
    chosen: list[int] = []
    while len(chosen) < number:
        free = np.flatnonzero(left)
        here = int(free[np.lexsort((-sizes[free], labels[free]))[0]])
        if here not in ranked:
            ranked[here] = _by_typicality(x, np.flatnonzero(cluster == here), known)
        chosen.append(ranked[here].pop())
        labels[here] += 1
        left[here] -= 1
    return np.array(chosen, np.int64)


def _by_typicality(x: np.ndarray, rows: np.ndarray, known: np.ndarray) -> list[int]:
    """Rows of a cluster without a label, the one with the largest mean cosine to its neighbors last."""
    if len(rows) > 1:
        near, _ = neighbors(x, min(TYPICAL_NEIGHBORS, len(rows) - 1), rows)
        rows = rows[np.argsort(near.mean(1), kind="stable")]
    return rows[~known[rows]].tolist()


@torch.no_grad()
def _diverse(x: np.ndarray, number: int, known: np.ndarray, seed: int) -> np.ndarray:
    closest = np.full(len(x), -np.inf, np.float32)  # cosine with the nearest image that is labeled or taken
    taken = known.copy()
    for part in blocks(int(known.sum()), 1024):
        _cover(x, np.flatnonzero(known)[part], closest)
    chosen: list[int] = []
    for _ in range(number):
        free = np.flatnonzero(~taken)
        if chosen or known.any():
            pick = int(free[closest[free].argmin()])
        else:
            pick = int(numpy_generator(seed, "first centre").choice(free))
        chosen.append(pick)
        taken[pick] = True
        _cover(x, np.array([pick]), closest)
    return np.array(chosen, np.int64)


def _cover(x: np.ndarray, centers: np.ndarray, closest: np.ndarray) -> None:
    directions = unit_rows(x, centers)
    for block in blocks(len(x)):
        closest[block] = np.maximum(closest[block], (unit_rows(x, block) @ directions.T).amax(1).numpy())
