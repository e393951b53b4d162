"""Curation: duplicates against fp64, planted label errors against cleanlab, defaults, choosing.

python -m benchmarks.curation
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch.nn import functional

from benchmarks.command import Json, command, progress, show
from benchmarks.timing import describe_machine, resident_mib
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.index import Index
from coulomb.index.choose import choose_rows
from coulomb.index.cluster import hdbscan, kmeans
from coulomb.index.few_labels import classify_rows
from coulomb.index.label_errors import find_label_errors, probe_probabilities
from coulomb.metrics.linear import predict_from_few
from coulomb.metrics.pairs import similar_pairs

ABOVE = 0.95
FLIPPED = 0.05
BUDGET = 200
DRAWS = 10


def planted_copies(rows: int, dim: int) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """Returns random unit rows in fp16 with planted near-copies, and their pairs with a cosine of at least .95 in fp64.

    Cosines of the planted pairs spread around the threshold. Other pairs of random rows are far from it, so that these are
    all pairs there are.
    """
    generator = numpy_generator(0, "bench duplicates")
    x = generator.normal(size=(rows, dim)).astype(np.float32)
    planted = rows // 40
    noise = generator.normal(size=(planted, dim)).astype(np.float32) * generator.uniform(0.2, 0.45, (planted, 1))
    x[-planted:] = x[:planted] + noise
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float16)
    first, second = np.arange(planted), np.arange(rows - planted, rows)
    a, b = x[first].astype(np.float64), x[second].astype(np.float64)
    cosines = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return x, set(zip(first[cosines >= ABOVE].tolist(), second[cosines >= ABOVE].tolist(), strict=True))


def bench_duplicates(rows: int, dim: int, say: Callable[[str], None]) -> dict[str, Any]:
    """All pairs ≥ .95 of `planted_copies`: seconds, added memory, recall against fp64."""
    x, wanted = planted_copies(rows, dim)
    say(f"all pairs of {rows:,} × {dim}")
    found: set[tuple[int, int]] = set()
    with PeakMemory() as memory:
        wall, cpu = time.perf_counter(), time.process_time()
        for i, j, _ in similar_pairs(x, ABOVE):
            found |= set(zip(i.tolist(), j.tolist(), strict=True))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "rows": rows, "dim": dim, "seconds": wall, "cpu_seconds": cpu,
        "memory_mb": memory.added, "pairs": len(found), "recall": len(found & wanted) / len(wanted),
        "not_in_fp64": len(found - wanted),
    }  # fmt: skip


class PeakMemory:
    """The largest resident memory within a block above that at its beginning, sampled every 10 ms: ``added``, in MiB."""

    def __enter__(self) -> "PeakMemory":
        self.first, self.added, self.over = resident_mib(), 0.0, threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()
        return self

    def sample(self) -> None:
        """Samples until the block ends."""
        while not self.over.wait(0.01):
            self.added = max(self.added, resident_mib() - self.first)

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()


def bench_label_errors(x: np.ndarray, labels: np.ndarray, say: Callable[[str], None]) -> dict[str, Any]:
    """Share of planted flips among the first 5% of the images, ours and, where it is installed, each ranking of cleanlab.

    5% of the labels are replaced by other classes, drawn uniformly. cleanlab gets the out-of-fold probabilities of the
    same linear probe.
    """
    generator = numpy_generator(0, "bench flips")
    classes = int(labels.max()) + 1
    flipped = generator.permutation(len(x))[: round(FLIPPED * len(x))]
    given = labels.copy()
    given[flipped] = (given[flipped] + generator.integers(1, classes, len(flipped))) % classes
    planted = np.zeros(len(x), bool)
    planted[flipped] = True
    say(f"label errors: {len(flipped)} planted among {len(x):,}")
    errors = find_label_errors(x, given)
    result = {"coulomb": float(planted[errors.rows[: len(flipped)]].sum() / len(flipped))}
    listed = errors.rows[errors.confidence >= errors.cutoff]
    cutoff = {
        "suspicious": len(errors.rows), "listed": len(listed),
        "precision": float(planted[listed].mean()) if len(listed) else None,
        "recall": float(planted[listed].sum() / len(flipped)),
    }  # fmt: skip
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return {"precision": result, "cutoff": cutoff, "skipped": "cleanlab is not installed"}
    say("label errors: cleanlab")
    probability = probe_probabilities(x, np.arange(len(x)), given, 0)
    probability /= probability.sum(1, keepdims=True)
    for score in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        ranked = np.argsort(get_label_quality_scores(given, probability, method=score), kind="stable")
        result[f"cleanlab {score}"] = float(planted[ranked[: len(flipped)]].mean())
    for kind in ("prune_by_noise_rate", "prune_by_class", "both", "confident_learning", "predicted_neq_given"):
        issues = find_label_issues(
            given, probability, filter_by=kind, return_indices_ranked_by="self_confidence", n_jobs=1
        )
        result[f"cleanlab {kind}"] = float(planted[issues[: len(flipped)]].sum() / len(flipped))
    return {"precision": result, "cutoff": cutoff}


def bench_defaults(x: np.ndarray, labels: np.ndarray, say: Callable[[str], None]) -> dict[str, Any]:
    """What clusters and a classifier of few labels do by default, and did before (HDBSCAN; 95% accuracy wanted).

    Clusters: their number, the share of images in none, and the share of the others with the most frequent label of their
    cluster. Classes, of labels for random images, means of 5 draws: the share of images that are not unsure, the accuracy
    of these, and the accuracy of all.
    """
    result: dict[str, Any] = {"clusters": {}, "classify": {}}
    for name, found in (("k-means", kmeans(x)), ("HDBSCAN", hdbscan(x))):
        say(f"clusters: {name}")
        inside = found.cluster >= 0
        most = sum(int(np.bincount(labels[found.cluster == each]).max()) for each in range(len(found.centers)))
        result["clusters"][name] = {
            "number": len(found.centers), "none": float((~inside).mean()), "purity": most / max(1, int(inside.sum()))
        }  # fmt: skip
    for given in (BUDGET // 5, BUDGET):
        for target in (None, 0.95):
            draws = []
            for seed in range(5):
                say(f"classify from {given} labels, draw {seed + 1} of 5")
                rows = numpy_generator(seed, "bench labels").permutation(len(x))[:given]
                few = np.full(len(x), -1)
                few[rows] = labels[rows]
                predicted = classify_rows(x, few, target=target)
                rest = few < 0
                right, sure = (predicted.predicted == labels)[rest], ~predicted.unsure[rest]
                draws.append((sure.mean(), right[sure].mean() if sure.any() else np.nan, right.mean()))
            means = np.nanmean(np.array(draws), 0).tolist()
            name = f"{given} labels, {'default' if target is None else 'accuracy .95'}"
            result["classify"][name] = dict(zip(("sure", "accuracy of sure", "accuracy"), means, strict=True))
    return result


def bench_choose(
    x: np.ndarray, labels: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, say: Callable[[str], None]
) -> dict[str, Any]:
    """Accuracy of a linear probe of 200 chosen images on the test images; means and deviations of 10 seeds.

    The probe is the one of few-shot accuracies: logistic regression, C = 100, on unit features.
    """
    train, test = (functional.normalize(torch.from_numpy(np.array(part)).float(), dim=1) for part in (x, test_x))
    y = torch.from_numpy(labels)
    ways: dict[str, Callable[[int], np.ndarray]] = {
        "random": lambda seed: numpy_generator(seed, "bench random").permutation(len(x))[:BUDGET],
        "typical": lambda seed: choose_rows(x, BUDGET, seed=seed),
    }
    result: dict[str, Any] = {}
    for name, pick in ways.items():
        accuracies = []
        for seed in range(DRAWS):
            say(f"choose {BUDGET}: {name}, draw {seed + 1} of {DRAWS}")
            rows = torch.from_numpy(pick(seed))
            predicted, _ = predict_from_few(train[rows], y[rows], test)
            accuracies.append(float((predicted.numpy() == test_y).mean()))
        result[name] = {"mean": float(np.mean(accuracies)), "std": float(np.std(accuracies, ddof=1))}
    return result


def bench_curation(
    index: Index | None, test: Index | None, *, rows: int = 127_000, dim: int = 256, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measures duplicates; with a labeled ``index`` label errors as well, and with a ``test`` index choosing.

    Raises:
        InputError: an index has images without a label, or the test index other classes.
    """
    result: dict[str, Any] = {"machine": describe_machine(), "duplicates": bench_duplicates(rows, dim, say)}
    if index is None:
        return result
    names: list[str | None] = sorted(set(index.labels), key=str)
    if None in names or (test is not None and not set(test.labels) <= set(names)):
        raise InputError("index: every image needs a label, of the same classes in the test index")
    number = {name: position for position, name in enumerate(names)}
    labels = np.array([number[label] for label in index.labels])
    result["label_errors"] = bench_label_errors(index.features, labels, say)
    result["defaults"] = bench_defaults(index.features, labels, say)
    if test is not None:
        test_labels = np.array([number[label] for label in test.labels])
        result["choose"] = bench_choose(index.features, labels, test.features, test_labels, say)
    return result


def render(result: dict[str, Any]) -> str:
    """Returns the figures as text."""
    pairs = result["duplicates"]
    lines = [
        f"all pairs ≥ {ABOVE} of {pairs['rows']:,} × {pairs['dim']}: {pairs['seconds']:.1f} s "
        f"({pairs['cpu_seconds']:.0f} s of CPU), {pairs['memory_mb']:.0f} MB above the array, "
        f"recall {pairs['recall']:.4%}, {pairs['not_in_fp64']} too many"
    ]
    errors = result.get("label_errors", {})
    for name, precision in errors.get("precision", {}).items():
        lines.append(f"planted label errors among the first {FLIPPED:.0%}, {name}: {precision:.1%}")
    if "cutoff" in errors:
        cut, precision = errors["cutoff"], errors["cutoff"]["precision"]
        lines.append(
            f"label errors: {cut['suspicious']} suspicious, {cut['listed']} above the cut-off, of these planted "
            f"{'none' if precision is None else f'{precision:.1%}'}, {cut['recall']:.1%} of the planted ones"
        )
    defaults = result.get("defaults", {})
    for name, one in defaults.get("clusters", {}).items():
        lines.append(
            f"{name}: {one['number']} clusters, {one['none']:.1%} of the images in none, purity {one['purity']:.1%}"
        )
    for name, one in defaults.get("classify", {}).items():
        lines.append(
            f"classify, {name}: {one['sure']:.1%} not unsure, right {one['accuracy of sure']:.1%}; all {one['accuracy']:.1%}"
        )
    if "skipped" in errors:
        lines.append(f"skipped: {errors['skipped']}")
    for name, accuracy in result.get("choose", {}).items():
        lines.append(f"{BUDGET} labels, {name}: {accuracy['mean']:.1%} ± {accuracy['std']:.1%}")
    return "\n".join(lines)


def main(
    index: Annotated[Path | None, typer.Argument(help="labeled index, for label errors and choosing")] = None,
    test: Annotated[Path | None, typer.Option(help="labeled index of held-out images, for choosing")] = None,
    rows: Annotated[int, typer.Option(help="images of the search for duplicates", min=100)] = 127_000,
    dim: Annotated[int, typer.Option(help="their dimensions", min=16)] = 256,
    as_json: Json = False,
) -> None:
    """Measure the search for duplicates, planted label errors (compared with cleanlab, if installed), and chosen labels."""
    opened = [None if path is None else Index.open(path) for path in (index, test)]
    with progress(quiet=as_json) as doing:
        result = bench_curation(*opened, rows=rows, dim=dim, say=doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "train.index --test test.index --json")
