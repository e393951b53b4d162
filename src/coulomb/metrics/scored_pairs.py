"""Scored pairs, such as semantic textual similarity: how well cosines agree with given scores."""

from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import Features, check_features
from coulomb.metrics.rows import blocks, cosines

REPLICATES, BLOCK, LEVEL = 2_000, 100, 0.95


def scored_pairs(first: Features, second: Features, scores: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Spearman's and Pearson's correlation of the cosines of pairs with given scores.

    Args:
        first: embeddings [n, D] of the first texts.
        second: embeddings [n, D] of the second texts.
        scores: how similar each pair is, in any unit, [n]; NaN where unknown, such pairs are left out and counted.
        seed: seed of the bootstrap.

    Returns:
        ``{"spearman": {"value", "low", "high"}, "pearson": {…}, "pairs", "pairs_left_out"}``, with 95% percentile intervals of
        2,000 resamples of the pairs; Spearman's resamples the ranks among all pairs. Equal values have their mean rank.

    Raises:
        InputError: fewer than 3 scored pairs, shapes that do not match, cosines or scores that are all equal.
    """
    x, y = check_features(first, "first").numpy(), check_features(second, "second").numpy()
    given = np.asarray(scores, np.float64)
    if x.shape != y.shape or given.shape != (len(x),):
        raise InputError(
            f"first {list(x.shape)}, second {list(y.shape)}, scores {list(given.shape)}: must have equal rows."
        )
    known = np.flatnonzero(np.isfinite(given))
    if len(known) < 3:
        raise InputError(f"scores: {len(known)} are known; a correlation needs at least 3.")
    found, wanted = cosines(x, known, y, known), given[known]
    for name, values in (("cosines", found), ("scores", wanted)):
        if np.ptp(values) < 1e-12:
            raise InputError(f"{name}: all are equal, so that there is no correlation.")
    from scipy.stats import rankdata

    variables = {"spearman": (rankdata(found.round(12)), rankdata(wanted)), "pearson": (found, wanted)}
    result: dict[str, Any] = {}
    for name, (a, b) in variables.items():
        low, high = _interval(a, b, seed)
        value = _correlation(a, b, np.ones((len(a), 1)))[0]
        result[name] = {"value": float(value), "low": low, "high": high}
    return result | {"pairs": len(known), "pairs_left_out": len(given) - len(known)}


def _interval(a: np.ndarray, b: np.ndarray, seed: int) -> tuple[float, float]:
    draw, n = numpy_generator(seed, "scored pairs"), len(a)
    values = []
    for block in blocks(REPLICATES, BLOCK):
        counts = [np.bincount(draw.integers(n, size=n), minlength=n) for _ in range(block.stop - block.start)]
        values.append(_correlation(a, b, np.stack(counts, axis=1)))
    found = np.concatenate(values)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])  # NaN: a resample of one distinct value
    return float(low), float(high)


def _correlation(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns Pearson's correlation for each column of ``counts`` [n, r], how often each pair counts."""
    a, b = (x - x.mean() for x in (a, b))
    a, b = a / a.std(), b / b.std()
    n = counts.sum(0)
    mean_a, mean_b = a @ counts / n, b @ counts / n
    covariance = (a * b) @ counts / n - mean_a * mean_b
    spread = ((a * a) @ counts / n - mean_a**2) * ((b * b) @ counts / n - mean_b**2)
    return np.where(spread > 1e-12, covariance / np.sqrt(np.maximum(spread, 1e-12)), np.nan)
