"""Scored pairs, such as semantic textual similarity: how well cosines agree with given scores."""

from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import Features, check_features
from coulomb.metrics.rows import blocks, cosines

REPLICATES, BLOCK, LEVEL = 2_000, 100, 0.95
LEAST = 3  # pairs


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

    Shape:
        first, second: [n, D].
        scores: [n].

    >>> angle = torch.linspace(0, 3, 20)
    >>> other = torch.stack([angle.cos(), angle.sin()], dim=1)
    >>> scored_pairs(other[:1].expand(20, 2), other, -angle.numpy())["spearman"]["value"]
    1.0
    """
    x, y = check_features(first, "first").numpy(), check_features(second, "second").numpy()
    if x.shape != y.shape or np.shape(scores) != (len(x),):
        raise InputError(
            f"first {list(x.shape)}, second {list(y.shape)}, scores {list(np.shape(scores))}: must have equal rows."
        )
    rows = np.arange(len(x))
    return score_correlations(cosines(x, rows, y, rows), scores, seed, name="cosines")


def score_correlations(
    similarities: np.ndarray, scores: np.ndarray, seed: int = 0, *, name: str = "similarities"
) -> dict[str, Any]:
    """`scored_pairs` of any similarities [n], such as those by BM25; ``name`` is what messages call them."""
    found, wanted = _known(similarities, scores, name)
    variables = {"spearman": (_ranks(found.round(12)), _ranks(wanted)), "pearson": (found, wanted)}
    result: dict[str, Any] = {}
    for kind, (a, b) in variables.items():
        low, high = _interval(a, b, seed)
        value = _correlation(a, b, np.ones((len(a), 1)))[0]
        result[kind] = {"value": float(value), "low": low, "high": high}
    return result | {"pairs": len(found), "pairs_left_out": len(scores) - len(found)}


def spearman_differences(
    trained: np.ndarray, baseline: np.ndarray, scores: np.ndarray, seed: int = 0
) -> tuple[float, float, np.ndarray]:
    """Returns Spearman's correlations of two similarities [n] with given scores, and their differences in 2,000 resamples.

    The resamples of pairs are the same for both, and those of `scored_pairs`.

    Raises:
        InputError: as `scored_pairs`.
    """
    ours, wanted = _known(trained, scores, "trained")
    theirs, _ = _known(baseline, scores, "baseline")
    ranks = [_ranks(each) for each in (ours.round(12), theirs.round(12), wanted)]  # equal up to rounding
    once = np.ones((len(wanted), 1))
    values = [float(_correlation(each, ranks[2], once)[0]) for each in ranks[:2]]
    resampled = [_resampled(each, ranks[2], seed) for each in ranks[:2]]
    return values[0], values[1], resampled[0] - resampled[1]


def _known(similarities: np.ndarray, scores: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the similarities and the scores of the pairs whose score is known."""
    similarities, given = np.asarray(similarities, np.float64), np.asarray(scores, np.float64)
    known = np.flatnonzero(np.isfinite(given))
    if len(known) < LEAST:
        raise InputError(f"scores: {len(known)} are known; a correlation needs at least {LEAST}.")
    found, wanted = similarities[known], given[known]
    for what, values in ((name, found), ("scores", wanted)):
        if np.ptp(values) < 1e-12:
            raise InputError(f"{what}: all are equal, so that there is no correlation.")
    return found, wanted


def _ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    ranks: np.ndarray = rankdata(values)
    return ranks


def _interval(a: np.ndarray, b: np.ndarray, seed: int) -> tuple[float, float]:
    found = _resampled(a, b, seed)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])  # NaN: a resample of one distinct value
    return float(low), float(high)


def _resampled(a: np.ndarray, b: np.ndarray, seed: int) -> np.ndarray:
    """Returns the correlations of 2,000 resamples of pairs."""
    draw, n = numpy_generator(seed, "scored pairs"), len(a)
    values = []
    for block in blocks(REPLICATES, BLOCK):
        counts = [np.bincount(draw.integers(n, size=n), minlength=n) for _ in range(block.stop - block.start)]
        values.append(_correlation(a, b, np.stack(counts, axis=1)))
    return np.concatenate(values)


def _correlation(a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns Pearson's correlation for each column of ``counts`` [n, r], how often each pair counts."""
    a, b = (x - x.mean() for x in (a, b))
    a, b = a / a.std(), b / b.std()
    n = counts.sum(0)
    mean_a, mean_b = a @ counts / n, b @ counts / n
    covariance = (a * b) @ counts / n - mean_a * mean_b
    spread = ((a * a) @ counts / n - mean_a**2) * ((b * b) @ counts / n - mean_b**2)
    return np.where(spread > 1e-12, covariance / np.sqrt(np.maximum(spread, 1e-12)), np.nan)
