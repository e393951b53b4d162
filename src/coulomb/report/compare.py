"""Several runs on one page: options that differ, results side by side, curves in common charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coulomb.evaluation.comparison import CONTESTANTS
from coulomb.ground.errors import InputError
from coulomb.ground.reading import finite
from coulomb.report.build import SCRIPTS, STYLES
from coulomb.report.collect import RunData, read_run
from coulomb.report.doctor_section import doctor_section
from coulomb.report.embedding_charts import plane_chart, read_spectrum, spectra_chart, trajectory
from coulomb.report.facts import header
from coulomb.report.pages.chart import UNLIMITED, Chart, Level, Series, line_chart
from coulomb.report.pages.numbers import duration, percent, significant
from coulomb.report.pages.page import ChartList, check_target, render_page, write_page
from coulomb.report.scores import Value, further_scores, scores
from coulomb.report.training_charts import last_value, read_points
from coulomb.report.verdict_section import verdict_section

MAX_RUNS = 8  # colors that can be told apart
FINAL_METRICS = {
    "knn": ("live kNN", percent, True),
    "effective_rank": ("effective rank of the features", significant, True),
    "embedding_rank": ("effective rank of the embeddings", significant, True),
    "lidar": ("LiDAR, two views", significant, True),
    "alignment": ("alignment", significant, False),
    "uniformity": ("uniformity", significant, False),
    "separation": ("separation", percent, True),
    "tolerance": ("tolerance", significant, False),
    "purity": ("purity", percent, True),
}  # label, format, and whether the highest is marked as the best
LIVE_CHARTS = {
    "knn": ("kNN accuracy during training", "accuracy on held-out images"),
    "effective_rank": ("Effective rank", "dimensions in use by the features"),
    "separation": ("Separation", "share of pairs in which the views are closer"),
    "view_retrieval": ("View retrieval", "recall@1"),
}
TRAINING_CHARTS = {
    "effective_negatives": ("Effective negatives", "number"),
    "top10pct_gradient": ("Gradient of the hardest tenth", "share of the gradient"),
    "gradient_norm": ("Gradient", "norm"),
    "lr": ("Learning rate", "per step"),
}
COMMON_BASELINES = ("starting_point", "raw_pixels")  # shown if they are the same for all runs
SHARES = {"knn", "separation", "view_retrieval", "top10pct_gradient"}


def build_comparison(runs: Sequence[Path | str], out: Path | str = "compare.html") -> Path:
    """Writes one page that compares ``runs`` side by side to ``out`` and returns its path.

    The run folders are not changed. Like a report, the page is one file that makes no network requests.

    Raises:
        InputError: fewer than two runs or more than eight, a folder that is not a run or is given twice, or an ``out``
            that cannot be a file.
    """
    folders = [Path(run).resolve() for run in runs]
    if not 2 <= len(folders) <= MAX_RUNS:
        raise InputError(f"runs: {len(folders)} given; a comparison needs 2 to {MAX_RUNS}")
    if twice := [str(folder) for i, folder in enumerate(folders) if folder in folders[:i]]:
        raise InputError(f"runs: {twice[0]!r} is given twice; give every run once")
    target = check_target(out)
    return write_page(target, render_comparison([read_run(folder) for folder in folders]))


def render_comparison(runs: Sequence[RunData]) -> str:
    """Returns the page as text."""
    charts, names = ChartList(), distinct_names(runs)
    groups = [(name, [charts.add(chart) for chart in members]) for name, members in compare_charts(runs, names)]
    content = {
        "names": names,
        "cards": [
            {
                "name": name,
                "style": f"k{i}",
                "folder": str(run.folder),
                "verdict": verdict_section(run),
                "doctor": doctor_section(run),
                "head": header(run),
            }
            for i, (run, name) in enumerate(zip(runs, names, strict=True))
        ],
        "differences": differences(runs),
        "results": results(runs),
        "baselines": {name: CONTESTANTS[name] for name in COMMON_BASELINES},
        "caution": caution(runs),
        "charts": groups,
        "problems": [f"{name}: {text}" for run, name in zip(runs, names, strict=True) for text in run.problems],
        "versions": sorted({str(run.environment["coulomb"]) for run in runs if "coulomb" in run.environment}),
    }
    return render_page("coulomb.report", "compare.html", content, charts=charts, styles=STYLES, scripts=SCRIPTS)


def distinct_names(runs: Sequence[RunData]) -> list[str]:
    """Returns the names of the folders, with as many parent folders as make them distinct."""
    for depth in range(1, max(len(run.folder.parts) for run in runs) + 1):
        names = ["/".join(run.folder.parts[-depth:]) for run in runs]
        if len(set(names)) == len(names):
            break
    return [run.name if depth == 1 else name for run, name in zip(runs, names, strict=True)]


@dataclass(frozen=True)
class Row:
    """``cells``: (text, deviation, whether it is the best) for each run; ``shared``: the text of each common baseline."""

    label: str
    cells: list[tuple[str, str, bool]]
    shared: dict[str, str] = field(default_factory=dict)


def differences(runs: Sequence[RunData]) -> list[tuple[str, list[str]]]:
    """Returns (option, its value in each run) for every option that differs, except the output folder."""
    flat = [_flatten(run.config) for run in runs]
    keys = list(dict.fromkeys(key for one in flat for key in one if key not in ("out", "root")))
    rows = [(key, [_text(one.get(key)) for one in flat]) for key in keys]
    return [(key.replace("_", " "), values) for key, values in rows if len(set(values)) > 1]


def results(runs: Sequence[RunData]) -> list[tuple[str, list[Row]]]:
    """Returns (heading, rows) for the trained encoders, the last live evaluation and the training."""
    measured = [{row.key: row for row in scores(run.evaluation) + further_scores(run.evaluation)} for run in runs]
    keys = list(dict.fromkeys(key for one in measured for key, row in one.items() if "trained" in row.values))
    accuracy = []
    for key in keys:
        rows = [one.get(key) for one in measured]
        label = next(row.label for row in rows if row is not None)
        values = [row.values.get("trained") if row is not None else None for row in rows]
        shared: dict[str, str] = {}
        for name in COMMON_BASELINES:
            means = {row.values[name].mean for row in rows if row is not None and name in row.values}
            if len(means) == 1:
                shared[name] = percent(means.pop())
        accuracy.append(Row(label, _cells(values, percent, True), shared))

    def rows_of_last(table: dict[str, tuple[str, Any, bool]], part: Callable[[RunData], Any]) -> list[Row]:
        ends = {key: [last_value(part(run), key) for run in runs] for key in table}
        kept = {key: values for key, values in ends.items() if any(value is not None for value in values)}
        return [Row(table[key][0], _cells(values, *table[key][1:])) for key, values in kept.items()]

    training = {"loss": ("last loss", significant, False), "seconds": ("training time", duration, False)}
    groups = [
        ("Trained encoders", accuracy),
        ("Last live evaluation", rows_of_last(FINAL_METRICS, lambda run: run.measures)),
        ("Training", rows_of_last(training, lambda run: run.training)),
    ]
    return [(name, rows) for name, rows in groups if rows]


def caution(runs: Sequence[RunData]) -> str:
    """Returns a warning if the results or the losses of the runs cannot be compared directly, else ''."""
    warnings = []
    measured = [
        (run.config.get("data"), run.config.get("test"), run.data.get("test"), run.data.get("split")) for run in runs
    ]
    if any(one != measured[0] for one in measured):
        warnings.append("The runs have different held-out images: their accuracies cannot be compared directly.")
    if len({(str(run.config.get("method")), _text(run.config.get("temperature"))) for run in runs}) > 1:
        warnings.append("Methods or temperatures differ: their losses are different quantities and cannot be compared.")
    return " ".join(warnings)


def _cells(values: Sequence[Value | float | None], write: Any, mark_best: bool) -> list[tuple[str, str, bool]]:
    means = [value.mean if isinstance(value, Value) else value for value in values]
    present = [mean for mean in means if mean is not None]
    best = max(present) if mark_best and len(set(present)) > 1 else None
    return [
        (
            write(mean),
            f"± {100 * value.std:.1f}" if isinstance(value, Value) and value.std is not None else "",
            best is not None and mean == best,
        )
        for value, mean in zip(values, means, strict=True)
    ]


def _flatten(config: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= {f"{key}: {name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _text(value: Any) -> str:
    number = finite(value)
    if number is not None:
        return f"{number:g}"
    return "–" if value is None else str(value)


def compare_charts(runs: Sequence[RunData], names: Sequence[str]) -> list[tuple[str, list[Chart]]]:
    """Returns (heading, charts); the charts without a heading are the large ones. Curve i has the color of run i."""

    def overlay(key: str, title: str, meaning: str, *, training: bool = False, levels: Sequence[Level] = ()) -> Any:
        x = "step" if training else "epoch"
        return line_chart(
            [
                Series(name, read_points(run.training if training else run.measures, x, key), f"k{i}")
                for i, (run, name) in enumerate(zip(runs, names, strict=True))
            ],
            title=title,
            x_label="training step" if training else "epoch",
            x_name=x,
            y_label=meaning,
            write=percent if key in SHARES else significant,
            levels=levels,
            limits=(0.0, 1.0) if key in SHARES else UNLIMITED,
        )

    constants = {value for run in runs if (value := last_value(run.training[-1:], "no_signal")) is not None}
    levels = []
    if len(constants) == 1:
        level = constants.pop()
        levels = [Level(level, f"constant embeddings: {significant(level)}", "nosignal")]
    spectra = [next((s for line in reversed(run.measures) if (s := read_spectrum(line))), []) for run in runs]
    large = [
        overlay("loss", "Training loss", "loss", training=True, levels=levels),
        overlay("knn", *LIVE_CHARTS["knn"]),
        plane_chart([trajectory(run, name, f"k{i}") for i, (run, name) in enumerate(zip(runs, names, strict=True))]),
        spectra_chart(
            "Spectrum of the embeddings at the end",
            [Series(name, values, f"k{i}") for i, (name, values) in enumerate(zip(names, spectra, strict=True))],
        ),
    ]
    small = [overlay(key, *words) for key, words in LIVE_CHARTS.items() if key != "knn"]
    small += [overlay(key, *words, training=True) for key, words in TRAINING_CHARTS.items()]
    groups = [("", large), ("Further metrics", small)]
    drawn = [(heading, [chart for chart in charts if chart is not None]) for heading, charts in groups]
    return [(heading, charts) for heading, charts in drawn if charts]
