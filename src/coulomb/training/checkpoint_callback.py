"""Callbacks that write checkpoints, and end the training after a signal."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from coulomb.ground.errors import InputError
from coulomb.training.checkpoints import keep_checkpoint
from coulomb.training.stopping import Signals


class SignalHandlers(pl.Callback):
    """Sets the handlers of ``signals`` again when training starts.

    Lightning has then replaced the handler of SIGTERM, and its handler would end the process without a message. It must be the
    first callback.
    """

    def __init__(self, signals: Signals):
        self.signals = signals

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Sets the handlers."""
        self.signals.install()


class Checkpoints(pl.Callback):
    """Writes ``last.ckpt`` every ``every`` updates, at the end of an epoch of at least ``epochs_of`` updates, at the end of
    the run, and when a signal stops it, see `keep_checkpoint`.

    It must be the last callback, so that all output of a step is on disk before the checkpoint of that step.

    Args:
        path: ``last.ckpt``. every: updates. epochs_of: see above.
        damaged: the run was resumed from ``previous.ckpt``; the damaged file at ``path`` is kept as ``damaged.ckpt``.
    """

    def __init__(self, path: Path, every: int, signals: Signals, *, epochs_of: int = 1, damaged: bool = False):
        self.path, self.every, self.signals, self.damaged = path, every, signals, damaged
        self.epochs_of, self.epoch_ended, self.begun = epochs_of, False, False

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """From now on, a signal ends the training after the current update. A checkpoint to resume from is already loaded."""
        self.begun = True
        if trainer.global_step:
            self.signals.step = trainer.global_step
        self.signals.patient = True

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Saves when a period or an epoch is complete, or the run is stopping."""
        epochs, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        self.epoch_ended |= not rest and (module.steps_per_epoch >= self.epochs_of or epochs == module.config.epochs)
        if not module.completes_update(batch_idx):
            return  # checkpoints do not contain the gradients of an incomplete update
        # A signal may reach only one process, or processes at different updates: they decide together.
        stop = trainer.strategy.reduce_boolean_decision(self.signals.number is not None, all=False)
        if stop or trainer.should_stop or self.epoch_ended or trainer.global_step % self.every == 0:
            self.epoch_ended = False
            self.save(trainer)
        if stop:
            trainer.should_stop = True

    def save(self, trainer: pl.Trainer) -> None:
        """Writes the checkpoint atomically; all processes must call this.

        Raises:
            InputError: the disk is full, or the folder is no longer writable.
        """
        temporary = self.path.with_suffix(".tmp")
        try:
            trainer.save_checkpoint(temporary, weights_only=False)  # with the optimizer
            if trainer.is_global_zero:
                keep_checkpoint(temporary, self.path, damaged=self.damaged)
                self.damaged = False
        except OSError as error:
            temporary.unlink(missing_ok=True)
            previous = "the previous one is kept" if self.path.exists() else "there is no previous one"
            raise InputError(
                f"checkpoint {str(self.path)!r}: cannot be written ({error.strerror or error}); {previous}; "
                "free some space, then continue with --resume"
            ) from None
        trainer.strategy.barrier("checkpoint")
        self.signals.step = trainer.global_step
