"""Charts of the course of training: loss, accuracy, and small charts of everything else that was recorded."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from coulomb.pages.chart import Chart, Level, Series, line_chart, lines_chart
from coulomb.pages.numbers import figure, percent
from coulomb.report.collect import Run, finite
from coulomb.report.scores import CONTESTANTS, scores


def loss_chart(run: Run) -> Chart | None:
    """The training loss between its floor and that of a network that tells nothing apart, where they are known."""
    signal, floor = (_last(run, key) for key in ("no_signal", "floor"))
    levels = []
    if signal is not None:
        levels.append(Level(signal, f"no signal: {_formula(run, signal)}{figure(signal)}", "nosignal"))
    if floor is not None:
        levels.append(Level(floor, f"floor: {figure(floor)}", "nosignal floor"))
    chart = line_chart(
        points(run.training, "step", "loss"),
        title="Training loss",
        x_label="training step",
        y_label="loss" if signal is None else "loss (nats)",
        levels=levels,
    )
    if chart is not None and floor is not None:
        chart.note = " ".join(filter(None, [chart.note, "Floor: no embeddings whatever have a smaller loss."]))
    return chart


def _last(run: Run, key: str) -> float | None:
    return next((value for line in reversed(run.training) if (value := finite(line.get(key))) is not None), None)


def _formula(run: Run, level: float) -> str:
    batch = finite(run.config.get("batch_size"))
    return "ln(2N−1) = " if batch and math.isclose(level, math.log(max(2 * batch - 1, 1)), rel_tol=1e-3) else ""


def progress_chart(run: Run) -> Chart | None:
    """How good the encoder is over the epochs: the live kNN, or without labels the retrieval of views."""
    return knn_chart(run) or line_chart(
        points(run.measures, "epoch", "view_retrieval"),
        title="View retrieval during training",
        x_label="epoch",
        y_label="share of held-out images whose other view is found",
        write=percent,
        limits=(0.0, 1.0),
        x_name="epoch",
    )


def knn_chart(run: Run) -> Chart | None:
    """Accuracy of the live kNN over epochs, with the baselines that the final evaluation measured."""
    row = next((row for row in scores(run.evaluation) if row.key == "knn"), None)
    levels = [
        Level(row.values[name].mean, f"{CONTESTANTS[name]} {percent(row.values[name].mean)}", name)
        for name in CONTESTANTS
        if row is not None and name != "trained" and name in row.values
    ]
    chart = line_chart(
        points(run.measures, "epoch", "knn"),
        title="kNN accuracy during training",
        x_label="epoch",
        y_label="share of held-out images classified rightly",
        levels=levels,
        write=percent,
        limits=(0.0, 1.0),
        x_name="epoch",
    )
    neighbours = [k for line in run.measures if (k := finite(line.get("knn_k"))) is not None]
    if chart is not None and neighbours:
        chart.note = f"Curve: live, k = {neighbours[-1]:.0f}, on a sample when the data are large."
        chart.note += " Lines: the final evaluation." if levels else ""
    return chart


def points(lines: list[dict], x: str, y: str) -> list[tuple[float, float]]:
    """The pairs of two figures of metrics lines, where both are finite numbers."""
    pairs = ((finite(line.get(x)), finite(line.get(y))) for line in lines)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


@dataclass(frozen=True)
class Small:
    """A small chart: ``curves`` is key of a metrics line → name; ``share``: written in percent;
    ``cosine``: not above 1."""

    title: str
    meaning: str
    reading: str
    curves: dict[str, str]
    share: bool = False
    cosine: bool = False


SIMILARITIES = {
    "positive_similarity": "two views",
    "hardest_similarity": "nearest other",
    "negative_similarity": "others",
}
GRADIENTS = {
    "top10pct_gradient": "top 10 %",
    "top1pct_gradient": "top 1 %",
    "top1_gradient": "hardest one",
    "false_negative_gradient": "same class",
}
GROUPS: dict[str, list[Small]] = {
    "Embeddings": [
        Small("Similarities", "mean cosine", "Views should rise above other images.", SIMILARITIES, cosine=True),
        Small(
            "Effective rank",
            "directions in use",
            "Higher: more directions are used.",
            {"effective_rank": "features", "embedding_rank": "embeddings"},
        ),
        Small("LiDAR", "directions that tell images apart", "Higher: beyond what views move.", {"lidar": ""}),
        Small("Separation", "share of pairs", "How often a view pair beats other images.", {"separation": ""}, True),
        Small("Purity", "share of 10 neighbours", "How many neighbours are of the class.", {"purity": ""}, True),
        Small("Tolerance", "mean cosine", "Higher: images of one class lie closer.", {"tolerance": ""}, cosine=True),
        Small(
            "View retrieval", "share found", "How often an image’s other view is found.", {"view_retrieval": ""}, True
        ),
    ],
    "Negatives and gradients": [
        Small(
            "Effective negatives", "negatives that count", "Few: τ is low. All: τ is high.", {"effective_negatives": ""}
        ),
        Small("Who carries the gradient", "share of the push", "From the hardest negatives.", GRADIENTS, True),
        Small("Drift", "1 − cosine", "Online against momentum encoder.", {"drift": ""}),
        Small(
            "Similarity in training",
            "mean cosine",
            "Of two training views.",
            {"train_positive_similarity": ""},
            cosine=True,
        ),
    ],
    "Optimiser": [
        Small("Gradient", "norm", "Spikes are unstable steps.", {"gradient_norm": ""}),
        Small("Update", "‖Δθ‖ / ‖θ‖", "How far a step moves the weights.", {"update_ratio": ""}),
        Small("Learning rate", "per step", "The schedule as it ran.", {"lr": ""}),
        Small("Speed", "images per second", "Training throughput.", {"images_per_second": ""}),
    ],
}
KNOWN = {key for group in GROUPS.values() for small in group for key in small.curves} | {
    "step", "epoch", "loss", "no_signal", "floor", "seconds", "negatives",
}  # fmt: skip
MOST_OWN = 8
STYLES = ("k0", "k1", "k2", "k6")


def small_charts(run: Run) -> list[tuple[str, list[Chart]]]:
    """(heading, charts) of every group that has one."""
    groups = {name: list(members) for name, members in GROUPS.items()}
    groups["The method’s own"] = _own(run)
    if knn_chart(run) is None:  # it has the large place
        groups["Embeddings"] = [small for small in groups["Embeddings"] if "view_retrieval" not in small.curves]
    made = [(name, [chart for small in members if (chart := _chart(run, small))]) for name, members in groups.items()]
    return [(name, charts) for name, charts in made if charts]


def _chart(run: Run, small: Small) -> Chart | None:
    keys = small.curves
    live = any(finite(line.get(key)) is not None for line in run.measures for key in keys)
    lines, x = (run.measures, "epoch") if live else (run.training, "step")
    several = len(keys) > 1
    write: Callable[[float], str] = _whole_percent if small.share else figure
    chart = lines_chart(
        [
            Series(name, points(lines, x, key), style if several else "quiet")
            for (key, name), style in zip(keys.items(), STYLES, strict=False)
        ],
        title=small.title,
        x_label=x,
        y_label=small.meaning,
        x_name=x,
        write=write,
        levels=_levels(lines) if "effective_negatives" in keys else [],
        limits=(0.0, 1.0) if small.share else (-1.0, 1.0) if small.cosine else (-math.inf, math.inf),
    )
    if chart is not None:
        chart.note = small.reading
    return chart


def _levels(lines: list[dict]) -> list[Level]:
    counts = [value for line in lines if (value := finite(line.get("negatives"))) is not None]
    return [Level(counts[-1], f"all {counts[-1]:,.0f}", "nosignal")] if counts else []


def _own(run: Run) -> list[Small]:
    """Numbers that only this run's method records, by their names."""
    keys = {key: None for line in run.training for key in line if key not in KNOWN and finite(line[key]) is not None}
    return [Small(key.replace("_", " "), "", "", {key: ""}) for key in sorted(keys)[:MOST_OWN]]


def _whole_percent(share: float) -> str:
    return percent(share, 1 if 0 < share < 0.1 else 0)
