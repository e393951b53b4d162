"""What the evaluations of runs on columns have in common: previews of cells for the report, and facts of the training."""

from typing import Any

import numpy as np

from coulomb.kinds.image.thumbnail import make_thumbnail
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.record.folder import RunFolder
from coulomb.training.record.journal import read_metrics
from coulomb.training.record.provenance import environment

PREVIEW = 64  # pixels of a picture in the report


def of_training(folder: RunFolder, plan: ColumnsPlan) -> dict[str, Any]:
    """Returns entries of the protocol: the split, the training, the versions."""
    metrics = read_metrics(folder.metrics)
    return {
        "split": plan.split.sentence,
        "epoch": max((line["epoch"] for line in metrics), default=0),
        "updates": max((int(line["step"]) for line in metrics if "loss" in line), default=0),
        "epochs": plan.config.epochs,
        "data": plan.config.data,
        "versions": environment(),
    }


def previews(plan: ColumnsPlan, column: str, rows: np.ndarray, shown: np.ndarray, side: int) -> dict[str, np.ndarray]:
    """Returns the places that are shown, and their texts or thumbnails (JPEG bytes, padded) for the report."""
    arrays = {f"shown_{side}": shown}
    cells = plan.held_out.columns[column]
    if plan.kinds[column] == "text":
        return arrays | {f"texts_{side}": np.array([cells[row] for row in rows.tolist()], dtype=np.str_)}
    if plan.kinds[column] == "image":
        pictures = [np.frombuffer(make_thumbnail(cells.image(row), PREVIEW), np.uint8) for row in rows.tolist()]
        ends = np.cumsum([len(picture) for picture in pictures])
        joined = np.concatenate(pictures) if pictures else np.empty(0, np.uint8)
        return arrays | {f"pictures_{side}": joined, f"ends_{side}": ends}
    return arrays
