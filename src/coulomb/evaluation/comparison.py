"""Paired comparison of the trained encoder with a baseline: same test images, same few-shot draws."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from coulomb.ground.randomness import numpy_generator

REPLICATES = 2_000
BLOCK = 100  # replicates per step: 100 · n counts in memory
LEVEL = 0.95
VIEWS = "view_retrieval"
START = "starting_point"  # the network with the weights that the run started from
# What an evaluation measures, in the order and with the names of every table, chart and card.
CONTESTANTS = {
    "trained": "trained encoder",
    START: "starting weights",
    "raw_pixels": "raw pixels",
    "random_init": "untrained network",
}
# Name in a comparison → contestant of the evaluation.
BASELINES = {START: START, "raw_pixels": "raw_pixels", "untrained": "random_init"}

Correct = Mapping[str, np.ndarray]


def compare(against: str, trained: Correct, baseline: Correct, seed: int = 0) -> dict[str, Any]:
    r"""Differences in accuracy between the trained encoder and one baseline, with paired bootstrap intervals.

    Each replicate resamples test images, and for few-shot also draws, with replacement, the same ones for both sides and
    for all measurements (Efron and Tibshirani, 1993; for the two factors of few-shot: Owen, 2007). As in Bonett and Price
    (2012), one image that only the trained encoder classifies correctly and one that only the baseline does are added,
    so that a handful of images is never significant.

    The intervals cover all measurements simultaneously with 95% probability (max-t, Romano and Wolf, 2005), so that one
    chance result among several is not significant. ``overall``, the mean of kNN, linear probe and few-shot (averaged
    over its numbers of labels), is one of them; without labels it is ``view_retrieval``. With labels,
    ``view_retrieval`` has a separate interval.

    Args:
        against: name of the baseline, ``"starting_point"``, ``"raw_pixels"`` or ``"untrained"``.
        trained, baseline: measurement → which test images are classified correctly, bool [n], for few-shot [draws, n].
            Measurements that one side lacks are left out.
        seed: seed of the bootstrap.

    Returns:
        ``{"against", "measurements": {NAME: {"trained", "baseline", "difference", "low", "high", "n", "outcome"}},
        "overall": {..., "of", "share"}}``. ``outcome`` is ``"better"`` if ``low`` > 0, ``"worse"`` if ``high`` < 0,
        otherwise ``"even"``. ``share`` is difference / (1 − baseline), the share of the baseline's errors that is removed;
        None if it makes none. ``overall`` is None without measurements.
    """
    names = [name for name in trained if name in baseline]
    result: dict[str, Any] = {"against": against, "measurements": {}, "overall": None}
    views = [name for name in names if name == VIEWS]
    for group in ([name for name in names if name != VIEWS], views):
        if not group:
            continue
        pairs = {name: (np.atleast_2d(trained[name]), np.atleast_2d(baseline[name])) for name in group}
        means = bootstrap({name: np.subtract(*pair, dtype=np.float32) for name, pair in pairs.items()}, seed)
        values = {name: (float(ours.mean()), float(theirs.mean())) for name, (ours, theirs) in pairs.items()}
        families = group_families(group)
        ours, theirs = (family_mean(families, {name: value[side] for name, value in values.items()}) for side in (0, 1))
        bounds = intervals(means | {"overall": family_mean(families, means)})
        n = next(iter(pairs.values()))[0].shape[1]
        result["measurements"] |= {name: comparison_row(*values[name], *bounds[name], n) for name in group}
        overall = comparison_row(ours, theirs, *bounds["overall"], n)
        result["overall"] = result["overall"] or with_share(overall, list(families))
    return result


def bootstrap(differences: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Returns the means of differences [draws, n] in {−1, 0, 1} for 2,000 resamples, the same images for all measurements.

    Sums are integers, so that the result does not depend on the machine.
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
    means, first = {}, 0
    for name, rows in differences.items():
        draws = len(rows)
        weights = numpy_generator(seed, "paired bootstrap", "draws", draws).multinomial(
            draws, np.full(draws, 1 / draws), size=REPLICATES
        )
        means[name] = (weights.T * sums[first : first + draws]).sum(axis=0) / (draws * images)
        first += draws
    return means


def intervals(means: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Simultaneous intervals: mean ± t·deviation, t the 95% quantile of the largest |replicate − mean| / deviation."""
    center = {name: float(values.mean()) for name, values in means.items()}
    deviation = {name: float(values.std()) for name, values in means.items()}
    largest = np.max([np.abs(values - center[name]) / deviation[name] for name, values in means.items()], axis=0)
    t = float(np.quantile(largest, LEVEL))
    return {name: (center[name] - t * deviation[name], center[name] + t * deviation[name]) for name in means}


def comparison_row(trained: float, baseline: float, low: float, high: float, n: int) -> dict[str, Any]:
    """One row of a comparison: two accuracies on ``n`` images, their difference with its interval, and the outcome."""
    difference = trained - baseline
    low, high = min(low, difference), max(high, difference)
    outcome = "better" if low > 0 else "worse" if high < 0 else "even"
    shown = {"trained": trained, "baseline": baseline, "difference": difference, "low": low, "high": high}
    return shown | {"n": n, "outcome": outcome}


def with_share(row: dict[str, Any], of: list[str]) -> dict[str, Any]:
    """Adds ``of``, the families that the row averages, and ``share``, the share of the baseline's errors that is removed."""
    errors = 1 - row["baseline"]
    return row | {"of": of, "share": row["difference"] / errors if errors > 0 else None}


def group_families(names: list[str]) -> dict[str, list[str]]:
    """Returns family → its measurements: all numbers of shots form the family "few_shot"."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault("few_shot" if name.startswith("few_shot") else name, []).append(name)
    return families


def family_mean(families: Mapping[str, list[str]], values: Mapping[str, Any]) -> Any:
    """Returns the mean over families of the mean over their measurements."""
    return np.mean([np.mean([values[name] for name in names], axis=0) for names in families.values()], axis=0)
