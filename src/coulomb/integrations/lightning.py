"""A callback for Lightning that logs figures of the embeddings during training, and the doctor's warnings."""

from typing import Any

import lightning.pytorch as pl

from coulomb.integrations.embedding_figures import EmbeddingFigures


class EmbeddingMonitor(pl.Callback, EmbeddingFigures):
    """Logs alignment, uniformity, effective rank, hardness of the negatives and temperature of the embeddings in a loss.

    ``Trainer(callbacks=[EmbeddingMonitor()])`` finds the losses of coulomb in the module. The figures of `EmbeddingFigures`,
    which has the arguments, are sent to all loggers of the trainer as ``coulomb/alignment``, …, with the number of the update
    as step, and are in ``trainer.callback_metrics``. Warnings go to the logger ``coulomb``.
    """

    update = 0  # that is measured, counted from 1

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Registers the hooks if this update is measured."""
        if trainer.is_global_zero and self.is_due(trainer.global_step + 1):
            self.listen(module)
            self.update = trainer.global_step + 1

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs the figures of this update."""
        if not self._listening:
            return
        figures = {
            f"coulomb/{name}": value for name, value in self.finish(self.update, trainer.current_epoch + 1).items()
        }
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=self.update)
        module.log_dict(figures, logger=False, on_step=True, on_epoch=False, rank_zero_only=True)
