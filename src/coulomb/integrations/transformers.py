"""A callback for the `Trainer` of transformers that logs figures of the embeddings, and the doctor's warnings."""

from typing import Any, Self

from torch import nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from coulomb.integrations.embedding_figures import EmbeddingFigures


class EmbeddingMonitor(TrainerCallback, EmbeddingFigures):
    """Logs alignment, uniformity, effective rank, hardness of the negatives and temperature of the embeddings in a loss.

    ``EmbeddingMonitor().attach(trainer)`` finds the losses of coulomb in the model; a loss outside of the model, as in a
    ``SentenceTransformerTrainer``, is passed: ``EmbeddingMonitor(loss)``. The figures of `EmbeddingFigures`, which has the
    arguments, are logged as ``coulomb/alignment``, … by the trainer, to all its reporters. With
    ``Trainer(callbacks=[EmbeddingMonitor()])`` they are in ``trainer.state.log_history`` only, since a callback does not know
    its trainer. Warnings go to the logger ``coulomb``.
    """

    trainer: Trainer | None = None

    def attach(self, trainer: Trainer) -> Self:
        """Adds the callback to a trainer, whose reporters then receive the figures; returns the callback."""
        self.trainer = trainer
        trainer.add_callback(self)
        return self

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Registers the hooks if this update is measured."""
        model: nn.Module = kwargs["model"]
        if state.is_world_process_zero and self.is_due(state.global_step + 1):
            self.listen(model)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Logs the figures of this update."""
        if not self._listening:
            return
        found = self.finish(state.global_step, int(state.epoch or 0) + 1)
        figures = {f"coulomb/{name}": value for name, value in found.items()}
        if not figures:
            return
        if self.trainer is None:
            state.log_history.append({**figures, "epoch": state.epoch, "step": state.global_step})
        else:
            should_log = control.should_log  # logging resets it, before the trainer has logged its loss
            self.trainer.log(figures)
            control.should_log = should_log
