"""The charts of a run's course: loss, kNN, and the small ones beside them."""

import math

from coulomb.report.chart import Chart, Level, line_chart
from coulomb.report.collect import Run, finite
from coulomb.report.scores import CONTESTANTS, scores
from coulomb.report.wording import figure, percent

# key of a metrics line → title, unit or meaning, and how to read it
SMALL = {
    "uniformity": ("Uniformity", "log of mean potential", "Lower: spread more evenly over the sphere."),
    "alignment": ("Alignment", "mean squared distance", "Lower: two views of an image lie closer."),
    "effective_rank": ("Effective rank", "directions in use", "Higher: more directions of the feature space are used."),
    "view_retrieval": ("View retrieval", "share found", "How often the other view of an image is found."),
    "lr": ("Learning rate", "per step", "The schedule as it ran."),
    "images_per_second": ("Speed", "images per second", "Training throughput."),
}


def loss_chart(run: Run) -> Chart | None:
    """The training loss against that of a network that tells nothing apart, ln(2N−1) for SimCLR, if the method has one."""
    points = _points(run.training, "step", "loss")
    levels = [value for line in run.training if (value := finite(line.get("no_signal"))) is not None]
    label = f"no signal: {_formula(run, levels[-1])}{figure(levels[-1])}" if levels else ""
    return line_chart(
        points,
        title="Training loss",
        x_label="training step",
        y_label="loss (nats)",
        levels=[Level(levels[-1], label, "nosignal")] if levels else [],
    )


def _formula(run: Run, level: float) -> str:
    batch = finite(run.config.get("batch_size"))
    return "ln(2N−1) = " if batch and math.isclose(level, math.log(max(2 * batch - 1, 1)), rel_tol=1e-3) else ""


def progress_chart(run: Run) -> Chart | None:
    """How good the encoder is over the epochs: the live kNN, or without labels the retrieval of views."""
    return knn_chart(run) or line_chart(
        _points(run.measures, "epoch", "view_retrieval"),
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
        _points(run.measures, "epoch", "knn"),
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


def small_charts(run: Run) -> list[Chart]:
    """A small chart for each further quantity that the metrics carry."""
    found = []
    for key, (title, label, note) in SMALL.items():
        if key == "view_retrieval" and knn_chart(run) is None:
            continue  # it has the large place
        lines, x = (run.measures, "epoch") if any(key in line for line in run.measures) else (run.training, "step")
        chart = line_chart(
            _points(lines, x, key),
            title=title,
            x_label=x,
            y_label=label,
            style="quiet",
            x_name=x,
            write=percent if key == "view_retrieval" else figure,
        )
        if chart is not None:
            chart.note = note
            found.append(chart)
    return found


def _points(lines: list[dict], x: str, y: str) -> list[tuple[float, float]]:
    pairs = ((finite(line.get(x)), finite(line.get(y))) for line in lines)
    return [(a, b) for a, b in pairs if a is not None and b is not None]
