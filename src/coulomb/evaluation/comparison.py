"""Paired comparison of the trained encoder with a baseline: the same test images, the same few-shot draws."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from coulomb.randomness import numpy_generator

REPLICATES = 2_000
BLOCK = 100  # replicates at a time: 100 · n counts in memory
LEVEL = 0.95
VIEWS = "view_retrieval"

Correct = Mapping[str, np.ndarray]


def compare(against: str, trained: Correct, baseline: Correct, seed: int = 0) -> dict[str, Any]:
    r"""Differences in accuracy between the trained encoder and one baseline, with paired bootstrap intervals.

    Each replicate resamples test images, and for few-shot also draws, with replacement, the same ones for both sides
    (Efron and Tibshirani, 1993; for the two factors of few-shot: Owen, 2007). The interval lies between the 2.5% and
    97.5% quantiles of the mean difference. As in Bonett and Price (2012), one image that only the trained encoder gets
    right and one that only the baseline gets right are added, so that a handful of images is never significant.

    ``overall`` is the mean of kNN, linear probe and few-shot (itself the mean over its numbers of labels). Its interval
    comes from the same replicates, hence accounts for their correlation, and is one test instead of five. Without labels
    it is ``view_retrieval``.

    Args:
        against: name of the baseline, ``"raw_pixels"`` or ``"untrained"``.
        trained, baseline: measurement → which test images are classified correctly, bool [n], for few-shot [draws, n].
            Measurements that one side lacks are left out.
        seed: of the bootstrap.

    Returns:
        ``{"against", "measurements": {NAME: {"trained", "baseline", "difference", "low", "high", "n", "outcome"}},
        "overall": {..., "of", "share"}}``. ``outcome`` is ``"better"`` if ``low`` > 0, ``"worse"`` if ``high`` < 0,
        otherwise ``"even"``. ``share`` is difference / (1 − baseline), the share of the baseline's errors that is gone;
        None if it makes none. ``overall`` is None without measurements.
    """
    names = [name for name in trained if name in baseline]
    pairs = {name: (np.atleast_2d(trained[name]), np.atleast_2d(baseline[name])) for name in names}
    means: dict[str, np.ndarray] = {}
    for group in ([name for name in names if name != VIEWS], [name for name in names if name == VIEWS]):
        if group:
            means |= bootstrap({name: np.subtract(*pairs[name], dtype=np.float32) for name in group}, seed)
    measurements = {
        name: entry(float(ours.mean()), float(theirs.mean()), means[name], ours.shape[1])
        for name, (ours, theirs) in pairs.items()
    }
    return {"against": against, "measurements": measurements, "overall": overall(measurements, means)}


def bootstrap(differences: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Means of differences [draws, n] in {−1, 0, 1} over 2,000 resamples, the same images for every measurement.

    Sums are whole numbers, so that the result does not depend on the machine.
    """
    padded = [np.pad(rows, ((0, 0), (0, 2))) for rows in differences.values()]
    for rows in padded:
        rows[:, -2:] = 1, -1
    stacked = np.concatenate(padded)
    images = stacked.shape[1]
    sums = np.empty((len(stacked), REPLICATES))
    draw = numpy_generator(seed, "paired bootstrap", "images")
    for start in range(0, REPLICATES, BLOCK):
        chosen = [np.bincount(draw.integers(images, size=images), minlength=images) for _ in range(BLOCK)]
        sums[:, start : start + BLOCK] = stacked @ np.stack(chosen, axis=1).astype(np.float32)
    found, first = {}, 0
    for name, rows in differences.items():
        draws = len(rows)
        weights = numpy_generator(seed, "paired bootstrap", "draws", draws).multinomial(
            draws, np.full(draws, 1 / draws), size=REPLICATES
        )
        found[name] = (weights.T * sums[first : first + draws]).sum(axis=0) / (draws * images)
        first += draws
    return found


def entry(trained: float, baseline: float, means: np.ndarray, n: int) -> dict[str, Any]:
    """Difference of two accuracies on ``n`` images, the interval from bootstrap ``means``, and the outcome."""
    difference = trained - baseline
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return bounded(trained, baseline, min(low, difference), max(high, difference), n)


def bounded(trained: float, baseline: float, low: float, high: float, n: int) -> dict[str, Any]:
    """One row of the comparison."""
    outcome = "better" if low > 0 else "worse" if high < 0 else "even"
    interval = {"difference": trained - baseline, "low": low, "high": high}
    return {"trained": trained, "baseline": baseline, **interval, "n": n, "outcome": outcome}


def overall(measurements: Mapping[str, Mapping[str, Any]], means: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """The mean over families of measurements; see `compare`."""
    groups = families(measurements)
    if not groups:
        return None
    trained, baseline = (
        float(np.mean([np.mean([measurements[name][side] for name in names]) for names in groups.values()]))
        for side in ("trained", "baseline")
    )
    averaged = np.mean([np.mean([means[name] for name in names], axis=0) for names in groups.values()], axis=0)
    n = min(measurements[name]["n"] for names in groups.values() for name in names)
    return summed(entry(trained, baseline, averaged, n), groups)


def summed(found: dict[str, Any], groups: Mapping[str, Any]) -> dict[str, Any]:
    """``found`` with what it is the mean of, and the share of the baseline's errors that is gone."""
    errors = 1 - found["baseline"]
    return found | {"of": list(groups), "share": found["difference"] / errors if errors > 0 else None}


def families(names: Mapping[str, Any]) -> dict[str, list[str]]:
    """kNN, linear, few-shot → their measurements; without labels only the retrieval of views."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name != VIEWS:
            found.setdefault("few_shot" if name.startswith("few_shot") else name, []).append(name)
    return found or ({VIEWS: [VIEWS]} if VIEWS in names else {})
