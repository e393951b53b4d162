"""Tables of a comparison: options that differ, and results side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coulomb.report.collect import Run, finite
from coulomb.report.scores import Value, further_scores, scores
from coulomb.report.wording import duration, figure, percent

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
