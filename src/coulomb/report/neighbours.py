"""Nearest neighbours by cosine of the features, among the sampled images."""

from dataclasses import dataclass

import numpy as np

from coulomb.randomness import numpy_generator


def nearest(features: np.ndarray, k: int = 8, among: np.ndarray | None = None) -> np.ndarray:
    """Indices [n, min(k, n−1)] of each row's nearest other rows, nearest first; ties by index.

    s_ij = x_i·x_j / (‖x_i‖‖x_j‖)

    ``among`` bool [n]: only these are looked for.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    room = len(features) - 1
    if among is not None:
        similarity[:, ~among] = -np.inf
        room = int(among.sum()) - 1
    return np.argsort(-similarity, axis=1, kind="stable")[:, : min(k, room)]


def draw_queries(labels: np.ndarray, n: int = 12, seed: int = 0) -> list[int]:
    """``n`` indices drawn at random; with labels, in turn over the classes, so that each has its chance."""
    order = numpy_generator(seed, "report", "queries").permutation(len(labels))
    turn: dict[int, int] = {}
    rounds = []
    for i in order.tolist():
        label = int(labels[i])
        turn[label] = turn.get(label, -1) + 1
        rounds.append((label < 0, turn[label], i))  # images without a label come last
    if (labels >= 0).any():
        rounds.sort(key=lambda entry: entry[:2])
    return sorted((i for *_, i in rounds[:n]), key=lambda i: (int(labels[i]) < 0, int(labels[i])))


@dataclass(frozen=True)
class Agreement:
    """How often neighbours share the class, over ``pairs`` pairs in which both labels are known."""

    share: float
    pairs: int


def agreement(neighbours: np.ndarray, labels: np.ndarray) -> Agreement | None:
    """The share of neighbours with the query's class; None without labels."""
    known = (labels[:, None] >= 0) & (labels[neighbours] >= 0)
    if not known.any():
        return None
    same = (labels[:, None] == labels[neighbours]) & known
    return Agreement(float(same.sum() / known.sum()), int(known.sum()))
