"""The user's callbacks in a run: Lightning's, with the epochs and the live evaluations of the run."""

import io
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import callbacks as lightning_callbacks

from coulomb.ground.errors import InputError
from coulomb.training.record.journal import Journal, read_metrics, scalars

log = logging.getLogger("coulomb")

# Of Lightning; each would change what is trained, and the run could not be resumed exactly.
REFUSED = tuple(
    getattr(lightning_callbacks, name)
    for name in (
        "BackboneFinetuning", "BaseFinetuning", "BatchSizeFinder", "GradientAccumulationScheduler", "LearningRateFinder",
        "ModelPruning", "StochasticWeightAveraging", "WeightAveraging",
    )
    if hasattr(lightning_callbacks, name)
)  # fmt: skip


def as_callbacks(callbacks: Any) -> tuple[pl.Callback, ...]:
    """Returns the user's callbacks: one, several, or none.

    Raises:
        InputError: an object is no callback of Lightning, or one that would change the training or the checkpoints of the run.
    """
    given = [] if callbacks is None else [callbacks] if isinstance(callbacks, pl.Callback) else callbacks
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"callbacks={callbacks!r}: must be a list of callbacks of Lightning")
    for callback in (given := tuple(given)):
        name = type(callback).__name__
        if not isinstance(callback, pl.Callback):
            raise InputError(
                f"callbacks: {name} of {type(callback).__module__} is not a callback of Lightning; derive it from "
                "lightning.pytorch.Callback (classes of the package pytorch_lightning are others)"
            )
        if isinstance(callback, REFUSED):
            raise InputError(
                f"callbacks: {name} changes what is trained, and the run could not be resumed exactly; leave it out, and "
                "see the options of train: tune, lr, schedule, accumulate, batch_size"
            )
        if isinstance(callback, lightning_callbacks.ModelCheckpoint) and callback.dirpath is None:
            raise InputError(
                f"callbacks: {name} without dirpath would write into the folder of the run's own checkpoints; give it a "
                "folder outside of the run, or leave it out: the run writes checkpoints itself (checkpoint_every)"
            )
    return given


class OwnCallbacks(pl.Callback):
    """Calls the user's callbacks, for which each pass over the training images is an epoch.

    Lightning runs the whole training as one epoch. Here ``on_train_epoch_start`` and ``on_train_epoch_end`` are called for
    every epoch of the run, and ``on_validation_end`` after every live evaluation but that of the untrained network; all other
    hooks as Lightning calls them. The numbers of ``metrics.jsonl`` are in ``trainer.callback_metrics``, in all processes.

    If a callback sets ``trainer.should_stop``, the run ends after the current update, in all processes. The checkpoint then
    says so, so that a resumed run does not go on.

    Args:
        own: the callbacks.
        journal: the metrics of the run.
        checkpoints: folder of the run's checkpoints, which is not theirs.

    Attributes:
        stopped: ``step``, ``epoch``, ``by`` (a class) and ``reason`` (or None) if a callback ended the run, else None.
    """

    def __init__(self, own: Sequence[pl.Callback], journal: Journal, checkpoints: Path):
        self.own, self.journal = own, journal
        self.stopped: dict[str, Any] | None = None
        self.lines: list[dict[str, Any]] = []
        self.asked: pl.Callback | None = None  # for a stop
        for callback in own:
            folder = getattr(callback, "dirpath", None)
            if folder is not None and Path(folder).resolve() == checkpoints.resolve():
                raise InputError(
                    f"callbacks: {type(callback).__name__} must not write to {str(folder)!r}, as the run does"
                )
        for hook in dir(pl.Callback):
            if (hook.startswith("on_") or hook in ("setup", "teardown")) and hook not in vars(OwnCallbacks):
                setattr(self, hook, self._forward(hook))

    def _forward(self, hook: str) -> Any:
        def call(trainer: pl.Trainer, *args: Any, **named: Any) -> None:
            for callback in self.own:
                before = trainer.should_stop
                getattr(callback, hook)(trainer, *args, **named)
                if trainer.should_stop and not before:
                    self.asked = callback

        return call

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Publishes the metrics so far; ends a run that a callback has ended before it was resumed."""
        if self.own:
            if trainer.is_global_zero:
                self.lines = read_metrics(self.journal.path)
                self.journal.listeners.append(self.lines.append)
            self._publish(trainer)
            self._forward("on_train_start")(trainer, module)
        trainer.should_stop |= self.stopped is not None

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: Any, batch_idx: int) -> None:
        """Begins an epoch of the run."""
        if batch_idx % module.steps_per_epoch == 0:
            self._forward("on_train_epoch_start")(trainer, module)
        self._forward("on_train_batch_start")(trainer, module, batch, batch_idx)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Publishes the metrics, ends an epoch of the run, and the run itself if a callback asks for it."""
        if not self.own:
            return
        self._publish(trainer)
        self._forward("on_train_batch_end")(trainer, module, outputs, batch, batch_idx)
        epoch, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        every, last = module.config.knn_every, module.config.epochs
        if rest == 0:
            if every and (epoch % every == 0 or epoch == last):
                self._forward("on_validation_end")(trainer, module)
            self._forward("on_train_epoch_end")(trainer, module)
        trainer.should_stop = False  # until the update is complete, and in all processes
        if not module.completes_update(batch_idx):
            return
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(self.asked is not None, all=False)
        if trainer.should_stop and epoch < last:
            reason = getattr(self.asked, "stopping_reason_message", None)
            self.stopped = {
                "step": trainer.global_step,
                "epoch": batch_idx // module.steps_per_epoch + 1,
                "by": type(self.asked).__name__,
                "reason": None if reason is None else str(reason),
            }

    def on_train_epoch_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Does nothing: this is the epoch of Lightning."""

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Does nothing: this is the epoch of Lightning."""

    def _publish(self, trainer: pl.Trainer) -> None:
        lines = [scalars(line) for line in self.lines]
        self.lines.clear()
        if trainer.world_size > 1:
            lines = trainer.strategy.broadcast(lines)
        for line in lines:
            trainer.callback_metrics.update({name: torch.tensor(float(value)) for name, value in line.items()})

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the callbacks.

        Raises:
            InputError: a state contains other things than tensors, numbers, strings, lists and dicts.
        """
        if not self.own and self.stopped is None:
            return {}
        states = {}
        for callback in self.own:
            states[callback.state_key] = state = callback.state_dict()
            try:
                buffer = io.BytesIO()
                torch.save(state, buffer)
                buffer.seek(0)
                torch.load(buffer, weights_only=True)
            except Exception as error:  # pickle and torch fail in many ways
                raise InputError(
                    f"callbacks: state_dict() of {type(callback).__name__} has objects that a checkpoint must not contain "
                    f"({' '.join(str(error).split())[:200]}); return tensors, numbers, strings, lists and dicts of these"
                ) from None
        return {"names": [type(callback).__name__ for callback in self.own], "states": states, "stopped": self.stopped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Gives each callback its state, and names those that are missing: no callback changes the weights."""
        self.stopped = state_dict["stopped"]
        given = [type(callback).__name__ for callback in self.own]
        missing = [name for name in state_dict["names"] if name not in given]
        if missing and self.stopped is None:
            log.warning(
                "the run began with callbacks that this call does not pass, and continues without them: %s; pass them again: "
                "coulomb.train(resume_from=…, callbacks=[…])",
                ", ".join(missing),
            )
        for callback in self.own:
            if state := state_dict["states"].get(callback.state_key):
                callback.load_state_dict(state)
