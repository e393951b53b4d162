"""`coulomb lab alignment-uniformity`: the way of every run through the plane of both."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import HEADLINES, NAMES, Claim, Rows, at_least, value
from coulomb.lab.experiment import Experiment
from coulomb.pages.numbers import signed
from coulomb.reading import read_json, table

METHODS, QUICK = ("simclr", "moco", "instdisc", "byol", "simsiam", "supcon"), ("simclr", "moco", "byol", "supcon")
WITH_NEGATIVES = ("simclr", "moco", "instdisc")
AGREE = 0.5  # rank correlation that is called agreement
FEWEST = 6  # runs that a correlation needs
WANG = "Wang & Isola (2020): both agree with accuracy, over hundreds of encoders on STL-10 and other data"


def arms(settings: Settings) -> list[Arm]:
    """Methods with negatives, without, and with labels."""
    names = QUICK if settings.quick else METHODS
    return [Arm(name, {"method": name, "knn_every": 1}, 12) for name in names]


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Trajectories; and whether aligned and uniform embeddings are good ones, over all runs of the lab on these data."""
    elsewhere = others(settings.out, settings.data)
    key = settings.headline
    claims = [
        *(_more_uniform(name, rows[name]) for name in WITH_NEGATIVES if name in rows),
        at_least(rows, "byol", "simclr", "uniformity", 0.0, "Without negatives (BYOL) embeddings are less uniform.", WANG),
        agreement(rows | elsewhere, key, "uniformity", "Uniform embeddings are good ones."),
        agreement(rows | elsewhere, key, "both", "Aligned and uniform embeddings are good ones."),
    ]  # fmt: skip
    here = [trajectory(name, found["course"]) for name, found in rows.items() if found.get("course")]
    charts = [plane("Every run's way", here), *ways(elsewhere)]
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": charts,
        "tables": [_ends(elsewhere, key)] if elsewhere else [],
        "notes": [
            "Alignment: mean ‖x − y‖² of two views of held-out images; uniformity: log mean e^(−2‖x − x'‖²). Less is "
            "better of both; embeddings that are all alike are at (0, 0), where untrained networks begin. The dot is the end.",
            f"{len(elsewhere)} runs of other experiments in the same folder, of the same data, are looked at too.",
        ],
    }


def others(out: Path, data: str) -> Rows:
    """Finished runs of the lab's other experiments on the same data, none of a long tail, by ``experiment/run``."""
    found: Rows = {}
    for path in sorted(out.glob("*/*.json")):
        if path.parent.name == ALIGNMENT_UNIFORMITY.name:
            continue
        record = read_json(path)
        if not isinstance(record, dict) or not table.fits(record.get("figures")) or not table.fits(record.get("asked")):
            continue  # another file than the record of a finished run
        figures = record["figures"]
        if figures.get("uniformity") is not None and _comparable(record["asked"], data):
            found[f"{path.parent.name}/{path.stem}"] = figures
    return found


def _comparable(asked: dict[str, Any], data: str) -> bool:
    return asked.get("data") == data and asked.get("long_tail") is None


def ways(rows: Rows) -> list[dict[str, Any]]:
    """A plane for each of the other experiments."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, figures in rows.items():
        experiment, _, run = name.partition("/")
        if figures.get("course"):
            found.setdefault(experiment, []).append(trajectory(run, figures["course"]))
    return [plane(experiment, series) for experiment, series in found.items()]


def trajectory(name: str, course: list[dict[str, Any]]) -> dict[str, Any]:
    """A series in the plane."""
    known = [at for at in course if at.get("uniformity") is not None and at.get("alignment") is not None]
    return {"name": name, "points": [(at["uniformity"], at["alignment"]) for at in known]}


def plane(title: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    """Uniformity across, alignment up."""
    labels = {"x_label": "uniformity: to the left is even", "y_label": "alignment: down is together"}
    return {"title": title, **labels, "path": True, "series": series}


def _more_uniform(name: str, found: dict[str, Any]) -> Claim:
    claim = f"Contrast spreads embeddings: {name} grows uniform in training."
    points = trajectory(name, found.get("course") or [])["points"]
    if len(points) < 2:
        return Claim(claim, WANG, "not measured", None)
    text = f"uniformity {points[0][0]:.2f} → {points[-1][0]:.2f}, alignment {points[0][1]:.3f} → {points[-1][1]:.3f}"
    return Claim(claim, WANG, text, points[-1][0] < points[0][0])


def agreement(rows: Rows, key: str, which: str, claim: str) -> Claim:
    """Rank correlation of accuracy with −uniformity, or with −(uniformity + alignment)."""
    from scipy.stats import spearmanr

    points = []
    for name in rows:
        accuracy, even, near = (value(rows, name, k) for k in (key, "uniformity", "alignment"))
        if accuracy is not None and even is not None and near is not None:
            points.append((accuracy, -even - (near if which == "both" else 0.0)))
    if len(points) < FEWEST:
        return Claim(claim, WANG, f"not measured: {len(points)} runs, {FEWEST} are needed", None)
    found = float(spearmanr([x for x, _ in points], [y for _, y in points]).statistic)
    of = "−uniformity" if which == "uniformity" else "−(alignment + uniformity)"
    text = f"rank correlation of {NAMES.get(key, key)} with {of} over {len(points)} runs: {signed(found, 2)}"
    chance = abs(found - AGREE) < 1 / math.sqrt(len(points) - 1)  # its deviation
    return Claim(claim, WANG, text, None if math.isnan(found) else found >= AGREE, chance)


def _ends(rows: Rows, key: str) -> dict[str, Any]:
    lines = [
        [name, f"{found.get(key, math.nan):.1%}", f"{found['alignment']:.3f}", f"{found['uniformity']:.2f}"]
        for name, found in rows.items()
    ]
    head = ["", NAMES.get(key, key), "alignment", "uniformity"]
    return {"title": "Runs of the other experiments", "lead": "Where they end.", "head": head, "rows": lines}


ALIGNMENT_UNIFORMITY = Experiment(
    name="alignment-uniformity",
    title="Alignment and uniformity",
    question="Which way does training take through the plane of both, and does accuracy follow?",
    arms=arms,
    judge=judge,
    columns=(
        *HEADLINES,
        ("alignment", "alignment", "figure"),
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
