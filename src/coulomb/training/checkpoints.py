"""Checkpoints that a kill at any moment cannot spoil."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from coulomb.errors import InputError
from coulomb.training.checkpoint_files import keep_checkpoint


class Checkpoints(pl.Callback):
    """Writes ``last.ckpt`` every ``every`` updates and at the end of each epoch, see `keep_checkpoint`.

    It must be the last callback: what the others write for a step is then on disk before the checkpoint of that step.

    Args:
        path: ``last.ckpt``. every: updates.
        damaged: the run was resumed from ``previous.ckpt``; the damaged file at ``path`` is kept as ``damaged.ckpt``.
    """

    def __init__(self, path: Path, every: int, *, damaged: bool = False):
        self.path, self.every, self.damaged = path, every, damaged
        self.epoch_ended = self.begun = False

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Note that the checkpoint to continue from, if any, has been loaded."""
        self.begun = True

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save when a period or an epoch is complete."""
        self.epoch_ended |= (batch_idx + 1) % module.steps_per_epoch == 0
        if not module.completes_update(batch_idx):
            return  # gradients of a half-complete update are in no checkpoint
        if self.epoch_ended or trainer.global_step % self.every == 0:
            self.epoch_ended = False
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint atomically; all processes must call this.

        Raises:
            InputError: the disk is full, or the folder cannot be written any more.
        """
        temporary = self.path.with_suffix(".tmp")
        try:
            trainer.save_checkpoint(temporary, weights_only=False)  # the optimiser too
            if trainer.is_global_zero:
                keep_checkpoint(temporary, self.path, damaged=self.damaged)
                self.damaged = False
        except OSError as error:
            temporary.unlink(missing_ok=True)
            kept = "the one before is kept" if self.path.exists() else "there is none before it"
            raise InputError(
                f"checkpoint {str(self.path)!r}: cannot be written ({error.strerror or error}); {kept}; "
                "free some space, then continue with --resume"
            ) from None
        trainer.strategy.barrier("checkpoint")
