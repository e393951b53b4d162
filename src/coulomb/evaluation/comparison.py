"""Paired comparison of the trained encoder with a baseline: same test images or queries, same few-shot draws."""

from collections.abc import Iterator, Mapping, Sequence
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
Values = Mapping[str, np.ndarray]


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

    >>> right, wrong = np.ones(50, bool), np.zeros(50, bool)
    >>> compare("raw_pixels", {"knn": right}, {"knn": wrong})["measurements"]["knn"]["difference"]
    1.0
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
    for block, counts in resamples(images, seed):
        sums[:, block] = stacked @ counts.astype(np.float32)
    means, first = {}, 0
    for name, rows in differences.items():
        draws = len(rows)
        weights = numpy_generator(seed, "paired bootstrap", "draws", draws).multinomial(
            draws, np.full(draws, 1 / draws), size=REPLICATES
        )
        means[name] = (weights.T * sums[first : first + draws]).sum(axis=0) / (draws * images)
        first += draws
    return means


def resamples(units: int, seed: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields (replicates, counts [units, b]): how often each of ``units`` occurs in each of 2,000 draws with replacement."""
    draw = numpy_generator(seed, "paired bootstrap", "images")
    for start in range(0, REPLICATES, BLOCK):
        chosen = [np.bincount(draw.integers(units, size=units), minlength=units) for _ in range(BLOCK)]
        yield slice(start, start + BLOCK), np.stack(chosen, axis=1)


def compare_by_cluster(
    against: str,
    trained: Values,
    baseline: Values,
    clusters: Mapping[str, np.ndarray],
    overall: Sequence[str],
    seed: int = 0,
) -> dict[str, Any]:
    """`compare` for values that depend on each other within clusters, such as the captions of a picture.

    Each replicate resamples whole clusters, the same ones for both sides and all measurements. One cluster of average size
    in which every value favors the trained side, and one in which every value favors the baseline, are added. The intervals
    cover all measurements and ``overall`` simultaneously.

    Args:
        against: name of the baseline.
        trained, baseline: measurement → a value in [0, 1] per query, float or bool [n]; n may differ between measurements.
        clusters: measurement → the cluster of each query, int64 [n] ≥ 0; clusters are numbered alike in all measurements.
        overall: the measurements whose mean is ``overall``.
        seed: seed of the bootstrap.

    Returns:
        As `compare`; ``n`` counts queries, and ``clusters`` the clusters.
    """
    differences = {name: np.subtract(values, baseline[name], dtype=np.float64) for name, values in trained.items()}
    values = {name: (float(np.mean(ours)), float(np.mean(baseline[name]))) for name, ours in trained.items()}
    means = cluster_bootstrap(differences, clusters, seed, added=(1, -1))
    bounds = intervals(means | {"overall": np.mean([means[name] for name in overall], axis=0)})
    ours, theirs = (float(np.mean([values[name][side] for name in overall])) for side in (0, 1))
    n = sum(len(trained[name]) for name in overall)
    row = comparison_row(ours, theirs, *bounds["overall"], n)
    return {
        "against": against,
        "measurements": {
            name: comparison_row(*values[name], *bounds[name], len(trained[name])) for name in differences
        },
        "overall": with_share(row, list(overall)) | {"clusters": _cluster_count(clusters)},
    }


def mean_intervals(values: Values, clusters: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, tuple[float, float]]:
    """Returns a 95% interval for the mean of each measurement, within [0, 1]; each interval covers on its own.

    Arguments as in `compare_by_cluster`. One cluster of average size with values of 1 and one with values of 0 are added, so
    that a score of 1 on a few queries has an interval as well.
    """
    means = cluster_bootstrap({name: np.asarray(each, np.float64) for name, each in values.items()}, clusters, seed)
    found = {}
    for name, replicates in means.items():
        mean = float(np.mean(values[name]))
        low, high = intervals({name: replicates})[name]
        found[name] = min(max(0.0, low), mean), max(min(1.0, high), mean)
    return found


def cluster_bootstrap(
    values: Values, clusters: Mapping[str, np.ndarray], seed: int, added: tuple[float, float] = (1, 0)
) -> dict[str, np.ndarray]:
    """Returns the means of values [n] for 2,000 resamples of clusters, the same ones for all measurements, [2000] each.

    ``added``: the values of the two clusters of average size that are added.
    """
    count = _cluster_count(clusters)
    totals, sizes = np.zeros((2, len(values), count + 2))
    for row, (name, each) in enumerate(values.items()):
        size = np.bincount(clusters[name], minlength=count)
        average = size.sum() / max(int((size > 0).sum()), 1)
        sizes[row] = np.append(size, [average, average])
        totals[row] = np.append(
            np.bincount(clusters[name], each, minlength=count), [average * value for value in added]
        )
    means = np.zeros((len(values), REPLICATES))
    for block, counts in resamples(count + 2, seed):
        drawn = sizes @ counts  # 0 if no cluster with a query of this measurement is drawn
        np.divide(totals @ counts, drawn, out=means[:, block], where=drawn > 0)
    return dict(zip(values, means, strict=True))


def _cluster_count(clusters: Mapping[str, np.ndarray]) -> int:
    return 1 + max(int(each.max()) for each in clusters.values())


def intervals(means: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Simultaneous intervals: mean ± t·deviation, t the 95% quantile of the largest |replicate − mean| / deviation."""
    center = {name: float(values.mean()) for name, values in means.items()}
    deviation = {name: float(values.std()) for name, values in means.items()}
    # Two contestants that order everything alike differ by 0 in every replicate.
    largest = np.max([np.abs(values - center[name]) / (deviation[name] or 1) for name, values in means.items()], axis=0)
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
