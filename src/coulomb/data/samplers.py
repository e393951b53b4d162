"""How often the images of a class are drawn in an epoch and in a batch."""

from math import exp, lgamma

import numpy as np

from coulomb.data.source import Labels
from coulomb.errors import InputError

SAMPLERS = {"uniform": 1.0, "square_root": 0.5, "class_balanced": 0.0}  # exponent q: p(class c) ∝ n_c^q


def class_probabilities(counts: np.ndarray, sampler: str) -> np.ndarray:
    """Probability of each class, p_c ∝ n_c^q (Kang et al., 2020), float64 [C], from its ``counts`` n [C].

    q is 1 for ``uniform`` (over images), ½ for ``square_root`` and 0 for ``class_balanced``. Classes without images have
    probability 0. Raises `InputError` for an unknown sampler.
    """
    if sampler not in SAMPLERS:
        raise InputError(f"sampler={sampler!r}: must be one of {', '.join(SAMPLERS)}")
    counts = np.asarray(counts, dtype=np.float64)
    weights = np.where(counts > 0, counts ** SAMPLERS[sampler], 0.0)
    return weights / max(weights.sum(), 1e-300)


def epoch_order(indices: Labels, labels: Labels | None, sampler: str, draw: np.random.Generator) -> Labels:
    """Returns the images of one epoch in random order, N in total.

    ``uniform`` shows every image once. The other samplers show L·p_c images of class c, where L is the number of labelled
    images: quotas are rounded up or down at random so that their mean over epochs is exact, and the number of times that
    two images of a class are shown differs by at most 1. Images of rare classes occur several times in an epoch, possibly
    in one batch, where methods that treat all other images as negatives treat such copies as negatives. Images without a
    label (−1) are shown once.

    Args:
        indices: the training images, int64 [N].
        labels: their labels in the same order; None if there are no labels.
        sampler: a name from ``SAMPLERS``.
        draw: generator of the epoch, the only source of randomness.

    Raises:
        InputError: the sampler is unknown, or needs labels and there are none.
    """
    if sampler == "uniform":
        return draw.permutation(indices)
    if labels is None or not (labels >= 0).any():
        raise InputError(f"sampler={sampler!r}: needs labels, and the training images have none; use sampler='uniform'")
    counts = np.bincount(labels[labels >= 0])
    total = int(counts.sum())
    # Systematic rounding: every quota is ⌊L·p⌋ or ⌈L·p⌉, their sum is L, and each is exact in expectation.
    edges = np.concatenate([[0.0], np.cumsum(class_probabilities(counts, sampler))]) * total
    edges[1:] = np.append(np.minimum(edges[1:-1], total), total)  # cumsum may not end at exactly 1
    quotas = np.diff(np.floor(edges + draw.random()).astype(np.int64))
    shown = [indices[labels < 0]]
    for label in np.flatnonzero(quotas):
        members = indices[labels == label]
        rounds, rest = divmod(int(quotas[label]), len(members))
        shown += [members] * rounds + [draw.permutation(members)[:rest]]
    return draw.permutation(np.concatenate(shown))


def most_frequent_class(labels: Labels, sampler: str) -> tuple[int, float]:
    """Returns the class whose images the sampler shows most often, and how often per epoch."""
    counts = np.bincount(labels[labels >= 0])
    times = class_probabilities(counts, sampler) * counts.sum() / np.maximum(counts, 1)
    return int(times.argmax()), float(times.max())


def p_no_positive(class_count: int, total: int, batch_size: int) -> float:
    """Probability that a batch of B has no other image of the anchor's class, if it is drawn without replacement.

    It is C(N − n, B − 1) / C(N − 1, B − 1) for a class of n among N images (hypergeometric, by log-gamma). Only other
    images count; with two views, an anchor also has its own other view as a positive.

    Args:
        class_count: n, images of the class.
        total: N, images in total.
        batch_size: B.

    Raises:
        InputError: ``class_count`` or ``batch_size`` is not in 1…total.
    """
    if not 1 <= class_count <= total or not 1 <= batch_size <= total:
        raise InputError(
            f"class_count={class_count}, total={total}, batch_size={batch_size}: the first and the last must lie in 1…total"
        )
    others, drawn = total - class_count, batch_size - 1
    if drawn > others:
        return 0.0
    log_p = lgamma(others + 1) - lgamma(others - drawn + 1) - lgamma(total) + lgamma(total - drawn)
    return min(1.0, exp(log_p))


def smallest_batch(class_count: int, total: int, most: float) -> int | None:
    """Returns the smallest batch size with `p_no_positive` ≤ ``most``, by bisection; None if there is none."""
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
