"""Mean gradient norm of each class during training: who moves the encoder?"""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from coulomb.metrics.gradients import class_gradient_norms
from coulomb.runs.journal import Journal


class ClassGradients(pl.Callback):
    """A line of figures beside every live evaluation, where training images have labels:

    - ``class_gradient_norm`` [C]: mean over the views of class c since the line before of ‖∂(B·loss)/∂h_i‖, with h_i the
      encoder's features of the view and B the batch's images (losses are means over it); null for a class without views;
    - ``class_gradient_views`` [C]: how many views these are.

    The gradient passes there anyway, so this costs a norm a row. Features, not embeddings, because every method has them,
    and what reaches the encoder through a classifier (PaCo's centres) passes them too. Views that a method encodes
    without gradient do not count. On several processes the images of all of them do.
    """

    def __init__(self, journal: Journal, num_classes: int):
        self.journal, self.num_classes = journal, num_classes
        self.sums = torch.zeros(num_classes, dtype=torch.float64)
        self.counts = torch.zeros(num_classes, dtype=torch.int64)
        self.fresh = torch.zeros(2, num_classes, dtype=torch.float64)  # sums and counts of this batch and process
        self.labels: Tensor | None = None
        self.scale = 1.0

    def state_dict(self) -> dict[str, Any]:
        """What is counted so far, for the checkpoint."""
        return {"sums": self.sums, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        self.sums, self.counts = state["sums"].clone(), state["counts"].clone()

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Listen to what the encoder returns."""
        self.handle = module.method.encoder.register_forward_hook(self._listen)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Stop listening: the encoder is saved and used without this."""
        self.handle.remove()

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: dict[str, Any], batch_idx: int) -> None:
        """Note whose features the next ones are."""
        self.labels = module.labels[batch["index"].cpu()]
        self.scale = float(len(batch["index"]) * module.config.accumulate)

    def _listen(self, encoder: Any, inputs: Any, features: Tensor) -> None:
        if self.labels is None or not features.requires_grad or len(features) % max(len(self.labels), 1):
            return
        # All methods stack views one below the other, so rows repeat the order of the batch.
        labels = self.labels.repeat(len(features) // len(self.labels))

        def add(gradient: Tensor) -> None:
            if bool(gradient.isfinite().all()):  # a loss that broke is told of elsewhere
                sums, counts = class_gradient_norms(gradient * self.scale, labels.to(gradient.device), self.num_classes)
                self.fresh += torch.stack([sums, counts.double()])

        features.register_hook(add)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Add up over the processes; write when enough epochs are complete, and begin anew."""
        self.labels = None
        self._add_up(module)
        epoch, rest = divmod(batch_idx + 1, module.steps_per_epoch)
        every, last = module.config.knn_every, module.config.epochs
        if rest or not every or (epoch % every and epoch != last):
            return
        norms = (self.sums / self.counts).tolist()
        line = {
            "epoch": epoch,
            "step": trainer.global_step,
            "class_gradient_norm": [n if c else None for n, c in zip(norms, self.counts.tolist(), strict=True)],
            "class_gradient_views": self.counts.tolist(),
        }
        self.sums, self.counts = torch.zeros_like(self.sums), torch.zeros_like(self.counts)
        if trainer.is_global_zero:
            self.journal.write(line)

    def _add_up(self, module: Any) -> None:
        """At every batch, so that all processes hold the same totals and a checkpoint of one is that of all."""
        if torch.distributed.is_initialized():
            everywhere = self.fresh.to(module.device, torch.float32)
            torch.distributed.all_reduce(everywhere)
            self.fresh = everywhere.cpu().double()
        self.sums, self.counts = self.sums + self.fresh[0], self.counts + self.fresh[1].long()
        self.fresh = torch.zeros_like(self.fresh)
