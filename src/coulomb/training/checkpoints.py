"""Checkpoints that a kill at any moment cannot spoil."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from coulomb.errors import InputError
from coulomb.training.checkpoint_files import keep_checkpoint
from coulomb.training.stopping import Signals


class Checkpoints(pl.Callback):
    """Writes ``last.ckpt`` every ``every`` updates, at the end of each epoch and when a signal stops the run, see
    `keep_checkpoint`.

    It must be the last callback: what the others write for a step is then on disk before the checkpoint of that step.

    Args:
        path: ``last.ckpt``. every: updates.
        damaged: the run was resumed from ``previous.ckpt``; the damaged file at ``path`` is kept as ``damaged.ckpt``.
    """

    def __init__(self, path: Path, every: int, signals: Signals, *, damaged: bool = False):
        self.path, self.every, self.signals, self.damaged = path, every, signals, damaged
        self.epoch_ended = self.begun = False

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """The checkpoint to resume from, if any, is loaded; from now on, a signal ends the training after an update."""
        self.begun = True
        if trainer.global_step:
            self.signals.step = trainer.global_step
        self.signals.patient = True

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save when a period or an epoch is complete, or the run is to stop."""
        self.epoch_ended |= (batch_idx + 1) % module.steps_per_epoch == 0
        if not module.completes_update(batch_idx):
            return  # gradients of a half-complete update are in no checkpoint
        # A signal may reach one process only, or all of them between different updates: they decide together.
        stop = trainer.strategy.reduce_boolean_decision(self.signals.number is not None, all=False)
        if stop or self.epoch_ended or trainer.global_step % self.every == 0:
            self.epoch_ended = False
            self.save(trainer)
        if stop:
            trainer.should_stop = True

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
        self.signals.step = trainer.global_step
