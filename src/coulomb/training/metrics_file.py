"""``metrics.jsonl``: one JSON object a line, written as things happen."""

import json
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from coulomb.training.run_folder import write_text


class MetricsFile(pl.Callback):
    """Writes a line for every update: ``step``, ``epoch``, ``loss``, ``no_signal``, ``lr``, ``images_per_second``,
    ``seconds`` (of training so far, evaluations included, interruptions not).

    ``loss`` is the mean over the accumulated batches of the update and is written in full precision. ``epoch`` counts
    from 1 and is the epoch that the step belongs to.
    """

    def __init__(self, path: Path):
        self.path = path
        self.pending: list[float] = []
        self.images = 0
        self.clock = 0.0
        self.seconds = 0.0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin, or on a resumed run forget what the checkpoint does not know."""
        self.clock = time.perf_counter()
        if trainer.is_global_zero:
            kept = drop_after(self.path, trainer.global_step)
            self.seconds = max((line.get("seconds", 0.0) for line in kept), default=0.0)

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: dict[str, Any], batch_idx: int
    ) -> None:
        """Collect the loss; write when the update is complete."""
        self.pending.append(float(outputs["value"]))
        self.images += len(batch["index"])
        if not module.completes_update(batch_idx):
            return
        now = time.perf_counter()
        self.seconds += now - self.clock
        line = {
            "step": trainer.global_step,
            "epoch": batch_idx // module.steps_per_epoch + 1,
            "loss": sum(self.pending) / len(self.pending),
            "no_signal": outputs["no_signal"],
            "lr": outputs["lr"],
            "images_per_second": round(self.images * trainer.world_size / max(now - self.clock, 1e-9), 1),
            "seconds": round(self.seconds, 3),
        }
        self.pending, self.images, self.clock = [], 0, now
        if trainer.is_global_zero:
            append(self.path, line)
            for logger in trainer.loggers:
                logger.log_metrics({k: v for k, v in line.items() if k != "step"}, step=trainer.global_step)


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one line; complete on disk before the next step begins."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def drop_after(path: Path, step: int) -> list[dict[str, Any]]:
    """Forget lines after ``step``, which the resumed run writes again, the same; returns those that stay."""
    kept = [line for line in read_metrics(path) if line["step"] <= step]
    write_text(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept))
    return kept
