"""`coulomb lab alignment-uniformity`: the trajectory of every run in the plane of alignment and uniformity."""

import math
from pathlib import Path
from typing import Any

from coulomb.ground.errors import counted
from coulomb.ground.reading import read_json, table
from coulomb.report.pages.numbers import signed
from coulomb_lab.arms import Arm, Settings
from coulomb_lab.claims import ACCURACIES, NAMES, NOT_MEASURED, TRAINING, Claim, Rows, at_least, read_value, summary
from coulomb_lab.experiment import Experiment

METHODS = ("simclr", "moco", "instdisc", "byol", "simsiam", "supcon")
QUICK_METHODS = ("simclr", "moco", "byol", "supcon")
WITH_NEGATIVES = ("simclr", "moco", "instdisc")
MIN_CORRELATION = 0.5  # rank correlation that counts as agreement
MIN_RUNS = 6  # for a correlation
WANG = "Wang & Isola (2020): both correlate with accuracy, over hundreds of encoders on STL-10 and other data"


def plane_arms(settings: Settings) -> list[Arm]:
    """Returns runs of methods with negatives, without negatives, and with labels."""
    names = QUICK_METHODS if settings.quick else METHODS
    return [Arm(name, {"method": name, "knn_every": 1}, 12) for name in names]


def summarize_plane(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Shows trajectories, and correlates accuracy with both measures over all runs of the lab on these data."""
    others, key = read_other_runs(settings.out, settings.data), settings.headline
    without = "Without negatives (BYOL), embeddings are less uniform."
    claims = [
        *(_uniformity_claim(name, rows[name]) for name in WITH_NEGATIVES if name in rows),
        at_least(rows, "byol", "simclr", "uniformity", 0.0, without, WANG),
        correlation_claim(rows | others, key, "uniformity", "Uniform embeddings are more accurate."),
        correlation_claim(rows | others, key, "both", "Aligned and uniform embeddings are more accurate."),
    ]
    here = [_trajectory(name, row["course"]) for name, row in rows.items() if row.get("course")]
    by_experiment: dict[str, list[dict[str, Any]]] = {}
    for name, row in others.items():
        experiment, _, run = name.partition("/")
        if row.get("course"):
            by_experiment.setdefault(experiment, []).append(_trajectory(run, row["course"]))
    charts = [
        _plane("Trajectory of every run", here),
        *(_plane(name, series) for name, series in by_experiment.items()),
    ]
    notes = [
        "Alignment: mean ‖x − y‖² of two views of held-out images; uniformity: log mean e^(−2‖x − x'‖²). Lower is better for "
        "both. Constant embeddings are at (0, 0), near where training starts. Arrows point to the end of training.",
    ]
    if others:
        are = "is" if len(others) == 1 else "are"
        notes.append(
            f"{counted(len(others), 'run')} of other experiments on the same data in this folder {are} included."
        )
    return summary(claims, charts=charts, notes=notes, tables=[_end_table(others, key)] if others else [])


def read_other_runs(out: Path, data: str) -> Rows:
    """Returns finished runs of the lab's other experiments on the same data without a long tail, by ``experiment/run``."""
    rows: Rows = {}
    for path in sorted(out.glob("*/*.json")):
        if path.parent.name == ALIGNMENT_UNIFORMITY.name:
            continue
        record = read_json(path)
        if not isinstance(record, dict) or not table.fits(record.get("figures")) or not table.fits(record.get("asked")):
            continue  # not the record of a finished run
        figures, options = record["figures"], record["asked"]
        same_data = options.get("data") == data and options.get("long_tail") is None
        if figures.get("uniformity") is not None and same_data:
            rows[f"{path.parent.name}/{path.stem}"] = figures
    return rows


def _trajectory(name: str, course: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("uniformity", "alignment")
    points = [tuple(epoch[key] for key in keys) for epoch in course if all(epoch.get(key) is not None for key in keys)]
    return {"name": name, "points": points}


def _plane(title: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    labels = {"x_label": "uniformity (left: more uniform)", "y_label": "alignment (down: views closer together)"}
    return {"title": title, **labels, "path": True, "series": series}


def _uniformity_claim(name: str, row: dict[str, Any]) -> Claim:
    claim = f"Contrastive training spreads embeddings: the uniformity of {name} improves."
    points = _trajectory(name, row.get("course") or [])["points"]
    if len(points) < 2:
        return Claim(claim, WANG, NOT_MEASURED, None)
    text = f"uniformity {points[0][0]:.2f} → {points[-1][0]:.2f}, alignment {points[0][1]:.3f} → {points[-1][1]:.3f}"
    return Claim(claim, WANG, text, points[-1][0] < points[0][0])


def correlation_claim(rows: Rows, key: str, which: str, claim: str) -> Claim:
    """Checks the rank correlation of accuracy with −uniformity, or with −(uniformity + alignment)."""
    from scipy.stats import spearmanr

    points = []
    for name in rows:
        accuracy, uniformity, alignment = (read_value(rows, name, k) for k in (key, "uniformity", "alignment"))
        if accuracy is not None and uniformity is not None and alignment is not None:
            points.append((accuracy, -uniformity - (alignment if which == "both" else 0.0)))
    if len(points) < MIN_RUNS:
        return Claim(claim, WANG, f"not measured: {len(points)} runs, {MIN_RUNS} are needed", None)
    correlation = float(spearmanr([x for x, _ in points], [y for _, y in points]).statistic)
    other = "−uniformity" if which == "uniformity" else "−(alignment + uniformity)"
    text = f"rank correlation of {NAMES.get(key, key)} with {other} over {len(points)} runs: {signed(correlation, 2)}"
    chance = abs(correlation - MIN_CORRELATION) < 1 / math.sqrt(len(points) - 1)  # its standard deviation
    return Claim(claim, WANG, text, None if math.isnan(correlation) else correlation >= MIN_CORRELATION, chance)


def _end_table(rows: Rows, key: str) -> dict[str, Any]:
    lines = [
        [name, f"{row.get(key, math.nan):.1%}", f"{row['alignment']:.3f}", f"{row['uniformity']:.2f}"]
        for name, row in rows.items()
    ]
    head = ["", NAMES.get(key, key), "alignment", "uniformity"]
    return {"title": "Runs of the other experiments", "lead": "At the end of training.", "head": head, "rows": lines}


ALIGNMENT_UNIFORMITY = Experiment(
    name="alignment-uniformity",
    title="Alignment and uniformity",
    question="How do alignment and uniformity change in training, and do they predict accuracy?",
    arms=plane_arms,
    summarize=summarize_plane,
    columns=(
        *ACCURACIES,
        ("alignment", "alignment", "figure"),
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        *TRAINING,
    ),
)
