"""How often the images of a class are drawn: in an epoch, and in a batch."""

from math import exp, lgamma

import numpy as np

from coulomb.data.source import Labels
from coulomb.errors import InputError

SAMPLERS = {"uniform": 1.0, "square_root": 0.5, "class_balanced": 0.0}  # exponent q: p(class c) ∝ n_c^q


def class_probabilities(counts: np.ndarray, sampler: str) -> np.ndarray:
    """p_c ∝ n_c^q over classes with images: q = 1 uniform over images, ½ square root, 0 class-balanced (Kang et al., 2020).

    ``counts`` [C] → float64 [C], summing to 1. Raises `InputError` for an unknown sampler.
    """
    if sampler not in SAMPLERS:
        raise InputError(f"sampler={sampler!r}: must be one of {', '.join(SAMPLERS)}")
    counts = np.asarray(counts, dtype=np.float64)
    weights = np.where(counts > 0, counts ** SAMPLERS[sampler], 0.0)
    return weights / max(weights.sum(), 1e-300)


def epoch_order(indices: Labels, labels: Labels | None, sampler: str, draw: np.random.Generator) -> Labels:
    """One epoch: as many images as ``indices`` has, in random order; a function of ``draw`` alone.

    ``uniform`` shows every image once. The others show class c about L·p_c times, L being the labelled images: quotas are
    rounded up or down at random so that their mean over epochs is exact, and within a class the images take turns, so
    that none is shown twice more than another. An image of a rare class then occurs several times in an epoch, perhaps in
    one batch: methods that take every other image for a negative see such copies as negatives. Images without a label
    (−1) are in no class: each is shown once.

    Args:
        indices: the training images, int64 [N]. labels: theirs, in the same order; None where there are none.
        sampler: a name from ``SAMPLERS``.
        draw: the epoch's generator.

    Raises:
        InputError: an unknown sampler, or one that needs labels where there are none.
    """
    if sampler == "uniform":
        return draw.permutation(indices)
    if labels is None or not (labels >= 0).any():
        raise InputError(f"sampler={sampler!r}: needs labels, and the training images have none; use sampler='uniform'")
    counts = np.bincount(labels[labels >= 0])
    total = int(counts.sum())
    # Systematic rounding: every quota is ⌊L·p⌋ or ⌈L·p⌉, they add up to L, and each is right on average.
    edges = np.concatenate([[0.0], np.cumsum(class_probabilities(counts, sampler))]) * total
    edges[1:] = np.append(np.minimum(edges[1:-1], total), total)  # cumsum may end a hair beside 1
    quotas = np.diff(np.floor(edges + draw.random()).astype(np.int64))
    shown = [indices[labels < 0]]
    for label in np.flatnonzero(quotas):
        members = indices[labels == label]
        rounds, rest = divmod(int(quotas[label]), len(members))
        shown += [members] * rounds + [draw.permutation(members)[:rest]]
    return draw.permutation(np.concatenate(shown))


def most_shown(labels: Labels, sampler: str) -> tuple[int, float]:
    """(class, times an epoch) of the class whose images the sampler shows most often."""
    counts = np.bincount(labels[labels >= 0])
    times = class_probabilities(counts, sampler) * counts.sum() / np.maximum(counts, 1)
    return int(times.argmax()), float(times.max())


def p_no_positive(class_count: int, total: int, batch_size: int) -> float:
    """P(no other image of the anchor's class among the other B − 1 of its batch), drawn without replacement.

    C(N − n, B − 1) / C(N − 1, B − 1) for a class of n among N images (hypergeometric, by log-gamma). It is about other
    images: with two views an anchor always has its own other view as well.
    """
    if not 1 <= class_count <= total or not 1 <= batch_size <= total:
        raise InputError(f"class_count={class_count}, total={total}, batch_size={batch_size}: both lie in 1…total")
    others, drawn = total - class_count, batch_size - 1
    if drawn > others:
        return 0.0
    log_p = lgamma(others + 1) - lgamma(others - drawn + 1) - lgamma(total) + lgamma(total - drawn)
    return min(1.0, exp(log_p))


def batch_for(class_count: int, total: int, most: float) -> int | None:
    """The smallest batch for which an anchor of a class of ``class_count`` has P(no positive) ≤ ``most``; None: there is none.

    Found by bisection, as P falls with the batch. Raises `InputError` as :func:`p_no_positive` does.
    """
    if p_no_positive(class_count, total, total) > most:
        return None
    low, high = 0, total  # P(low) > most ≥ P(high)
    while high - low > 1:
        middle = (low + high) // 2
        if p_no_positive(class_count, total, middle) > most:
            low = middle
        else:
            high = middle
    return high
