"""The large charts of a run's course: loss, and how good the encoder is."""

import math

from coulomb.report.chart import Chart, Level, line_chart
from coulomb.report.collect import Run, finite
from coulomb.report.scores import CONTESTANTS, scores
from coulomb.report.wording import figure, percent


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
