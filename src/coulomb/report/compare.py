"""Several runs on one page: options that differ, results side by side, curves in common charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coulomb.errors import InputError
from coulomb.pages.chart import Chart, Level, Series, lines_chart
from coulomb.pages.numbers import duration, figure, percent
from coulomb.pages.page import render_page, target_of, write_page
from coulomb.report.build import Numbered, verdict_of
from coulomb.report.collect import Run, collect, finite
from coulomb.report.doctor_section import doctor_section
from coulomb.report.embedding_charts import LEAST, plane_chart, spectrum_of, trajectory
from coulomb.report.facts import header
from coulomb.report.scores import Value, further_scores, scores
from coulomb.report.training_charts import points

LAST = {
    "knn": ("live kNN", percent, 1),
    "effective_rank": ("effective rank of the features", figure, 1),
    "embedding_rank": ("effective rank of the embeddings", figure, 1),
    "lidar": ("LiDAR, two views", figure, 1),
    "alignment": ("alignment", figure, 0),
    "uniformity": ("uniformity", figure, 0),
    "separation": ("separation", percent, 1),
    "tolerance": ("tolerance", figure, 0),
    "purity": ("purity", percent, 1),
}  # of the last live evaluation: name, how it is written, 1: more is better, 0: neither


@dataclass(frozen=True)
class Row:
    """``cells``: (text, deviation, best of the row) for each run; ``shared``: a baseline's text where all have the same."""

    label: str
    cells: list[tuple[str, str, bool]]
    shared: str = ""


def differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(option, its value in each run) of every option that differs; where runs are written is none of them."""
    flat = [_flat(run.config) for run in runs]
    keys = list(dict.fromkeys(key for one in flat for key in one if key not in ("out", "root")))
    rows = [(key, [_text(one.get(key)) for one in flat]) for key in keys]
    return [(key.replace("_", " "), values) for key, values in rows if len(set(values)) > 1]


def results(runs: Sequence[Run]) -> list[tuple[str, list[Row]]]:
    """(heading, rows): of the trained encoders, of the last live evaluation, of the training."""
    found = [{row.key: row for row in scores(run.evaluation) + further_scores(run.evaluation)} for run in runs]
    keys = list(dict.fromkeys(key for one in found for key, row in one.items() if "trained" in row.values))
    accuracy = []
    for key in keys:
        rows = [one.get(key) for one in found]
        label = next(row.label for row in rows if row is not None)
        values = [row.values.get("trained") if row is not None else None for row in rows]
        pixels = {row.values["raw_pixels"].mean for row in rows if row is not None and "raw_pixels" in row.values}
        accuracy.append(Row(label, _cells(values, percent, 1), percent(pixels.pop()) if len(pixels) == 1 else ""))
    live = []
    for key, (label, write, better) in LAST.items():
        ends = [_last(run.measures, key) for run in runs]
        if any(end is not None for end in ends):
            live.append(Row(label, _cells(ends, write, better)))
    spent = [_last(run.training, "loss") for run in runs], [_last(run.training, "seconds") for run in runs]
    training = [
        Row(label, _cells(ends, write, 0))
        for label, ends, write in zip(("last loss", "time of training"), spent, (figure, duration), strict=True)
        if any(end is not None for end in ends)
    ]
    groups = [("Trained encoders", accuracy), ("Last live evaluation", live), ("Training", training)]
    return [(name, rows) for name, rows in groups if rows]


def caution(runs: Sequence[Run]) -> str:
    """A sentence where the runs were not measured on the same images, or trained to different ends."""
    told = []
    measured = [
        (run.config.get("data"), run.config.get("test"), run.data.get("test"), run.data.get("split")) for run in runs
    ]
    if any(one != measured[0] for one in measured):
        told.append(
            "The runs were not measured on the same held-out images: their accuracies cannot be compared directly."
        )
    if len({(str(run.config.get("method")), _text(run.config.get("temperature"))) for run in runs}) > 1:
        told.append(
            "Methods or temperatures differ: their losses are different quantities, of which the lower is not the better."
        )
    return " ".join(told)


def _cells(values: Sequence[Value | float | None], write: Any, better: int) -> list[tuple[str, str, bool]]:
    means = [value.mean if isinstance(value, Value) else value for value in values]
    known = [mean for mean in means if mean is not None]
    best = max(known) if better and len(known) > 1 and len(set(known)) > 1 else None
    return [
        (
            write(mean),
            f"± {100 * value.std:.1f}" if isinstance(value, Value) and value.std is not None else "",
            best is not None and mean == best,
        )
        for value, mean in zip(values, means, strict=True)
    ]


def _last(lines: list[dict[str, Any]], key: str) -> float | None:
    return next((value for line in reversed(lines) if (value := finite(line.get(key))) is not None), None)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= {f"{key}: {name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _text(value: Any) -> str:
    number = finite(value)
    if number is not None:
        return f"{number:g}"
    return "–" if value is None else str(value)


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


MOST = 8  # colours that can be told apart


def build_comparison(runs: Sequence[Path | str], out: Path | str = "compare.html") -> Path:
    """Write one page that shows ``runs`` side by side to ``out``; returns its path.

    The runs themselves stay as they are. The page is a file of its own like a report: offline, without requests.

    Raises :class:`coulomb.errors.InputError` when there are fewer than two runs or more than eight, one is not a run folder or
    is given twice, or ``out`` is a folder.
    """
    folders = [Path(run).resolve() for run in runs]
    if not 2 <= len(folders) <= MOST:
        raise InputError(f"runs: {len(folders)} given; a comparison shows 2 to {MOST} of them")
    if twice := [str(folder) for i, folder in enumerate(folders) if folder in folders[:i]]:
        raise InputError(f"runs: {twice[0]!r} is given twice; give every run once")
    target = target_of(out)
    return write_page(target, render_comparison([collect(folder) for folder in folders]))


def render_comparison(runs: Sequence[Run]) -> str:
    """The page as text."""
    charts, names = Numbered(), names_of(runs)
    groups = [(name, [charts.add(chart) for chart in found]) for name, found in compare_charts(runs, names)]
    return render_page(
        "compare.html",
        {
            "names": names,
            "cards": [_card(run, name, i) for i, (run, name) in enumerate(zip(runs, names, strict=True))],
            "differences": differences(runs),
            "results": results(runs),
            "caution": caution(runs),
            "charts": groups,
            "problems": [f"{name}: {text}" for run, name in zip(runs, names, strict=True) for text in run.problems],
            "versions": sorted({str(run.environment["coulomb"]) for run in runs if "coulomb" in run.environment}),
            "sheet": None,
            "for_script": {"charts": charts.readouts},
        },
    )


def names_of(runs: Sequence[Run]) -> list[str]:
    """The folders' names, with as many of their parents as tell them apart."""
    for depth in range(1, max(len(run.folder.parts) for run in runs) + 1):
        names = ["/".join(run.folder.parts[-depth:]) for run in runs]
        if len(set(names)) == len(names):
            break
    return [run.name if depth == 1 else name for run, name in zip(runs, names, strict=True)]


def _card(run: Run, name: str, number: int) -> dict[str, Any]:
    return {
        "name": name,
        "style": f"k{number}",
        "folder": str(run.folder),
        "verdict": verdict_of(run),
        "doctor": doctor_section(run),
        "head": header(run),
    }
