"""A line of figures for every update."""

import time
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl

from coulomb.runs.journal import Journal


class TrainingFigures(pl.Callback):
    """Writes a line for every update: ``step``, ``epoch``, ``loss``, ``no_signal``, ``floor``, ``lr``,
    ``images_per_second``, ``seconds`` (of training so far, evaluations included, interruptions not), the method's own
    figures, and those of ``more``, asked for at every line.

    ``no_signal``, the loss of knowing nothing, and ``floor``, the least there is, are null where the method has no such value.

    ``loss`` is the mean over processes and over the accumulated batches of the update and is written in full
    precision. ``epoch`` counts from 1 and is the epoch that the step belongs to.
    """

    def __init__(self, journal: Journal, more: Callable[[], dict[str, float]] = dict):
        self.journal, self.more = journal, more
        self.pending: list[float] = []
        self.images = 0
        self.clock = 0.0
        self.seconds = 0.0

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin, or on a resumed run forget what the checkpoint does not know."""
        self.clock = time.perf_counter()
        if trainer.is_global_zero:
            kept = self.journal.forget_after(trainer.global_step)
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
        line = (
            module.method_figures()
            | self.more()
            | {
                "step": trainer.global_step,
                "epoch": batch_idx // module.steps_per_epoch + 1,
                "loss": sum(self.pending) / len(self.pending),
                "no_signal": outputs["no_signal"],
                "floor": outputs["floor"],
                "lr": outputs["lr"],
                "images_per_second": round(self.images * trainer.world_size / max(now - self.clock, 1e-9), 1),
                "seconds": round(self.seconds, 3),
            }
        )
        self.pending, self.images, self.clock = [], 0, now
        if trainer.is_global_zero:
            self.journal.write(line)
