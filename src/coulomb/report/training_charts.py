"""Charts of the course of training: loss, accuracy, and a small chart of everything else that was recorded."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS
from coulomb.ground.reading import finite
from coulomb.report.collect import RunData
from coulomb.report.pages.chart import UNLIMITED, Chart, Level, Series, line_chart
from coulomb.report.pages.numbers import percent, significant
from coulomb.report.scores import scores

Lines = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class SmallChart:
    """A small chart. ``curves`` maps a key of the metrics to the name of its curve.

    ``share`` values are written in percent; ``cosine`` values are at most 1. ``meaning`` labels the y-axis, ``reading``
    explains the chart.
    """

    title: str
    meaning: str
    reading: str
    curves: dict[str, str]
    share: bool = False
    cosine: bool = False


SIMILARITIES = {
    "positive_similarity": "two views",
    "hardest_similarity": "hardest negative",
    "negative_similarity": "negatives",
}
GRADIENTS = {
    "top10pct_gradient": "top 10 %",
    "top1pct_gradient": "top 1 %",
    "top1_gradient": "hardest one",
    "false_negative_gradient": "same class",
}
RANKS = {"effective_rank": "features", "embedding_rank": "embeddings"}
GROUPS: dict[str, list[SmallChart]] = {
    "Embeddings": [
        SmallChart("Similarities", "mean cosine", "Views should be closer than negatives.", SIMILARITIES, cosine=True),
        SmallChart("Effective rank", "dimensions in use", "Higher: more dimensions are used.", RANKS),
        SmallChart("LiDAR", "dimensions that separate images", "Higher: more than views vary in.", {"lidar": ""}),
        SmallChart("Separation", "share of pairs", "Views closer than a random pair.", {"separation": ""}, True),
        SmallChart("Purity", "share of 10 neighbors", "Neighbors of the same class.", {"purity": ""}, True),
        SmallChart("Tolerance", "mean cosine", "Higher: classes are more compact.", {"tolerance": ""}, cosine=True),
        SmallChart("View retrieval", "recall@1", "The nearest image is the other view.", {"view_retrieval": ""}, True),
    ],
    "Negatives and gradients": [
        SmallChart(
            "Effective negatives", "number", "Few: τ is low. All of them: τ is high.", {"effective_negatives": ""}
        ),
        SmallChart("Gradient shares", "share of the gradient", "From the hardest negatives.", GRADIENTS, True),
        SmallChart("Drift", "1 − cosine", "Online compared with momentum encoder.", {"drift": ""}),
        SmallChart(
            "Similarity in training",
            "mean cosine",
            "Between two training views.",
            {"train_positive_similarity": ""},
            cosine=True,
        ),
    ],
    "Optimizer": [
        SmallChart("Gradient", "norm", "Spikes are unstable steps.", {"gradient_norm": ""}),
        SmallChart("Update", "‖Δθ‖ / ‖θ‖", "Relative change of the weights per step.", {"update_ratio": ""}),
        SmallChart("Learning rate", "per step", "The schedule as applied.", {"lr": ""}),
        SmallChart("Speed", "images per second", "Training throughput.", {"images_per_second": ""}),
    ],
}
RECALL = {"recall_at_1": "R@1", "recall_at_5": "R@5", "recall_at_10": "R@10", "mrr": "MRR"}
ELSEWHERE = {
    "step",
    "epoch",
    "loss",
    "no_signal",
    "floor",
    "seconds",
    "negatives",
}  # of the training, not in a small chart
MAX_OWN = 8  # small charts of metrics that only this run's method records


def read_points(lines: Lines, x: str, y: str) -> list[tuple[float, float]]:
    """Returns the pairs of two metrics, where both are finite numbers."""
    pairs = ((finite(line.get(x)), finite(line.get(y))) for line in lines)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def last_value(lines: Lines, key: str) -> float | None:
    """Returns the last finite value of a metric; None if there is none."""
    return next((value for line in reversed(lines) if (value := finite(line.get(key))) is not None), None)


def loss_chart(run: RunData) -> Chart | None:
    """The training loss, with its lower bound and its value for constant embeddings if they are known."""
    constant, floor = last_value(run.training, "no_signal"), last_value(run.training, "floor")
    levels = []
    if constant is not None:
        batch = finite(run.config.get("batch_size"))
        known = batch and math.isclose(constant, math.log(max(2 * batch - 1, 1)), rel_tol=1e-3)
        formula = "ln(2N−1) = " if known else ""
        levels.append(Level(constant, f"constant embeddings: {formula}{significant(constant)}", "nosignal"))
    if floor is not None:
        levels.append(Level(floor, f"minimum: {significant(floor)}", "nosignal floor"))
    return line_chart(
        [Series("", read_points(run.training, "step", "loss"), "trained")],
        title="Training loss",
        x_label="training step",
        x_name="step",
        y_label="loss" if constant is None else "loss (nats)",
        levels=levels,
        note="" if floor is None else "Minimum: no embeddings have a smaller loss.",
    )


def progress_chart(run: RunData) -> Chart | None:
    """The quality of the encoder over the epochs: live kNN accuracy, or view retrieval if there are no labels."""
    return knn_chart(run) or line_chart(
        [Series("", read_points(run.measures, "epoch", "view_retrieval"), "trained")],
        title="View retrieval during training",
        x_label="epoch",
        y_label="share of held-out images whose nearest neighbor is their other view",
        write=percent,
        limits=(0.0, 1.0),
    )


def knn_chart(run: RunData) -> Chart | None:
    """The live kNN accuracy over the epochs, with the baselines of the final evaluation."""
    row = next((row for row in scores(run.evaluation) if row.key == "knn"), None)
    levels = [
        Level(row.values[name].mean, f"{CONTESTANTS[name]} {percent(row.values[name].mean)}", name)
        for name in CONTESTANTS
        if row is not None and name != "trained" and name in row.values
    ]
    k = last_value(run.measures, "knn_k")
    note = "" if k is None else f"Curve: live kNN, k = {k:.0f}, on a sample of large data sets."
    if note and row is not None and "trained" in row.values:
        whitened = " of whitened features" if finite(run.config.get("whitening")) else ""
        note += f" The final accuracy{whitened}, on all images, is {percent(row.values['trained'].mean)}."
    return line_chart(
        [Series("", read_points(run.measures, "epoch", "knn"), "trained")],
        title="kNN accuracy during training",
        x_label="epoch",
        y_label="accuracy on held-out images",
        levels=levels,
        write=percent,
        limits=(0.0, 1.0),
        note=note + (" Lines: baselines." if note and levels else ""),
    )


def live_recall_chart(run: RunData) -> Chart | None:
    """Retrieval among held-out pairs over the epochs, for a run on two columns."""
    return line_chart(
        [
            Series(name, read_points(run.measures, "epoch", key), f"k{at}")
            for at, (key, name) in enumerate(RECALL.items())
        ],
        title="Retrieval during training",
        x_label="epoch",
        y_label="share of queries, mean of both directions",
        write=percent,
        limits=(0.0, 1.0),
        note="On at most 1,000 held-out pairs.",
    )


def pair_groups(first: str, second: str) -> dict[str, list[SmallChart]]:
    """Returns the small charts of a run on two columns of these names."""
    similarities = SIMILARITIES | {"positive_similarity": "pairs"}
    sides = {"embedding_rank": first, "second_rank": second}
    of_pairs = {
        "Embeddings": [
            SmallChart(
                "Similarities", "mean cosine", "Pairs should be closer than negatives.", similarities, cosine=True
            ),
            SmallChart("Separation", "share of pairs", "Pairs closer than a random pair.", {"separation": ""}, True),
            SmallChart("Effective rank", "dimensions in use", "Higher: more dimensions are used.", sides),
            SmallChart(
                "Modality gap", "distance of the centers", "0: both fill the same region.", {"modality_gap": ""}
            ),
        ],
        "Negatives and gradients": [
            small for small in GROUPS["Negatives and gradients"] if "train_positive_similarity" not in small.curves
        ],
        "Optimizer": GROUPS["Optimizer"],
    }
    of_pairs["Negatives and gradients"] += [
        SmallChart(
            "Similarity in training",
            "mean cosine",
            "Of the pairs in a batch.",
            {"train_positive_similarity": ""},
            cosine=True,
        ),
        SmallChart("Temperature", "τ", "Learned. Low: the hardest negatives count.", {"temperature": ""}),
    ]
    return of_pairs


def small_charts(run: RunData) -> list[tuple[str, list[Chart]]]:
    """Returns (heading, charts) of every group that has a chart."""
    groups = pair_groups(*run.columns) if run.columns else {name: list(members) for name, members in GROUPS.items()}
    groups["Optimizer"] = [
        replace(small, meaning=f"{run.rows_are}s per second") if "images_per_second" in small.curves else small
        for small in groups["Optimizer"]
    ]
    shown = {key for members in groups.values() for small in members for key in small.curves}
    groups["Other metrics of the method"] = _own_charts(run, shown)
    if not run.columns and knn_chart(run) is None:  # then view retrieval is a large chart
        groups["Embeddings"] = [small for small in groups["Embeddings"] if "view_retrieval" not in small.curves]
    drawn = [(name, [chart for small in members if (chart := _draw(run, small))]) for name, members in groups.items()]
    return [(name, charts) for name, charts in drawn if charts]


def _draw(run: RunData, small: SmallChart) -> Chart | None:
    keys = small.curves
    live = any(finite(line.get(key)) is not None for line in run.measures for key in keys)
    lines, x = (run.measures, "epoch") if live else (run.training, "step")
    styles = ("k0", "k1", "k2", "k6") if len(keys) > 1 else ("quiet",)
    negatives = last_value(lines, "negatives") if "effective_negatives" in keys else None
    write: Callable[[float], str] = _whole_percent if small.share else significant
    chart = line_chart(
        [
            Series(name, read_points(lines, x, key), style)
            for (key, name), style in zip(keys.items(), styles, strict=False)
        ],
        title=small.title,
        x_label=x,
        y_label=small.meaning,
        write=write,
        levels=[] if negatives is None else [Level(negatives, f"all {negatives:,.0f}", "nosignal")],
        limits=(0.0, 1.0) if small.share else (-1.0, 1.0) if small.cosine else UNLIMITED,
    )
    if chart is not None:
        chart.note = small.reading
    return chart


def _own_charts(run: RunData, shown: set[str]) -> list[SmallChart]:
    known = shown | ELSEWHERE
    keys = {key: None for line in run.training for key in line if key not in known and finite(line[key]) is not None}
    return [SmallChart(key.replace("_", " "), "", "", {key: ""}) for key in sorted(keys)[:MAX_OWN]]


def _whole_percent(share: float) -> str:
    return percent(share, 1 if 0 < share < 0.1 else 0)
