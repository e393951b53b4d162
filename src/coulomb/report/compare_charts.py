"""The curves of several runs over one another."""

from collections.abc import Callable, Sequence

from coulomb.report.chart import Chart, Level, Series, lines_chart
from coulomb.report.collect import Run, finite
from coulomb.report.curves import points
from coulomb.report.plane import plane_chart, trajectory
from coulomb.report.spectrum import LEAST, spectrum_of
from coulomb.report.wording import figure, percent

# key of a metrics line → title, what it is; of the live evaluation by epoch, of training by step
LIVE = {
    "knn": ("kNN accuracy during training", "share of held-out images classified rightly"),
    "effective_rank": ("Effective rank", "directions in use, of the features"),
    "separation": ("Separation", "share of pairs in which the view pair is nearer"),
    "view_retrieval": ("View retrieval", "share found"),
}
TRAINING = {
    "effective_negatives": ("Effective negatives", "negatives that count"),
    "top10pct_gradient": ("Gradient of the hardest tenth", "share of the push"),
    "gradient_norm": ("Gradient", "norm"),
    "lr": ("Learning rate", "per step"),
}
SHARES = {"knn", "separation", "view_retrieval", "top10pct_gradient"}


def compare_charts(runs: Sequence[Run], names: Sequence[str]) -> list[tuple[str, list[Chart]]]:
    """(heading, charts); the first heading's charts are the large ones. Curve i has the colour of run i."""
    signal = {
        value for run in runs for line in run.training[-1:] if (value := finite(line.get("no_signal"))) is not None
    }
    loss = _over(runs, names, "loss", "Training loss", "loss", training=True)
    if loss is not None and len(signal) == 1:
        level = signal.pop()
        levels = [Level(level, f"no signal: {figure(level)}", "nosignal")]
        loss = _over(runs, names, "loss", "Training loss", "loss", training=True, levels=levels)
    ways = [trajectory(run, name, f"k{i}") for i, (run, name) in enumerate(zip(runs, names, strict=True))]
    large = [loss, _over(runs, names, "knn", *LIVE["knn"]), plane_chart(ways), _spectra(runs, names)]
    small = [_over(runs, names, key, *words) for key, words in LIVE.items() if key != "knn"]
    small += [_over(runs, names, key, *words, training=True) for key, words in TRAINING.items()]
    groups = [("", large), ("Further figures", small)]
    kept = [(heading, [chart for chart in charts if chart is not None]) for heading, charts in groups]
    return [(heading, charts) for heading, charts in kept if charts]


def _over(
    runs: Sequence[Run],
    names: Sequence[str],
    key: str,
    title: str,
    meaning: str,
    *,
    training: bool = False,
    levels: Sequence[Level] = (),
) -> Chart | None:
    x = "step" if training else "epoch"
    write: Callable[[float], str] = percent if key in SHARES else figure
    return lines_chart(
        [
            Series(name, points(run.training if training else run.measures, x, key), f"k{i}")
            for i, (run, name) in enumerate(zip(runs, names, strict=True))
        ],
        title=title,
        x_label="training step" if training else "epoch",
        y_label=meaning,
        write=write,
        x_name=x,
        levels=levels,
        limits=(0.0, 1.0) if key in SHARES else (-float("inf"), float("inf")),
    )


def _spectra(runs: Sequence[Run], names: Sequence[str]) -> Chart | None:
    last = [next((found for line in reversed(run.measures) if (found := spectrum_of(line))), []) for run in runs]
    return lines_chart(
        [Series(name, values, f"k{i}") for i, (name, values) in enumerate(zip(names, last, strict=True))],
        title="Spectrum of the embeddings, at the end",
        x_label="direction, the widest first",
        y_label="singular value, the largest = 1",
        limits=(LEAST, 1.0),
        log_y=True,
        x_name="direction",
    )
