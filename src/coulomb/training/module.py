"""The training step, as Lightning wants it."""

import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from coulomb.data.views import ViewMaker
from coulomb.errors import NonFiniteError
from coulomb.randomness import derive_seed, generator
from coulomb.training.config import Config
from coulomb.training.nonfinite import first_nonfinite, save_batch
from coulomb.training.optimizers import build_optimizer
from coulomb.training.schedule import warmup_cosine


class ContrastiveTraining(pl.LightningModule):
    """Views of the batch on the device, the method's loss, one update: everything else is in callbacks.

    Lightning sees the whole run as one pass over ``RunLoader``: the step is the only clock, and the epoch is computed
    from it. So a run can stop and start again at any step.

    Args:
        method: module with ``forward(views, labels) -> loss`` and ``no_signal(batch, views)``.
        views: the augmentations.
        labels: [N] labels by image index, −1 unknown; None where there are none.
        config: the run's options.
        steps_per_epoch: batches an epoch and process.
        folder: the run folder; a batch that broke the run is saved there.
    """

    def __init__(
        self,
        method: nn.Module,
        views: ViewMaker,
        labels: Tensor | None,
        config: Config,
        steps_per_epoch: int,
        folder: Path,
    ):
        super().__init__()
        # Convolutions run faster on it, on CPUs and on tensor cores; the numbers are the same up to rounding.
        self.method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.views, self.config = views, config
        self.labels = labels
        self.steps_per_epoch = steps_per_epoch
        self.folder = folder

    @property
    def updates(self) -> int:
        """Updates in the whole run."""
        return math.ceil(self.config.epochs * self.steps_per_epoch / self.config.accumulate)

    def completes_update(self, batch_idx: int) -> bool:
        """Whether the optimiser moves after this batch: always, unless gradients accumulate."""
        done = batch_idx + 1
        return done % self.config.accumulate == 0 or done == self.config.epochs * self.steps_per_epoch

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Loss of one batch; ``batch_idx`` counts from the start of the run."""
        # Dropout and the like draw from the global generator: make it a function of the step too.
        torch.manual_seed(derive_seed(self.config.seed, "step", batch_idx, self.global_rank))
        draw = generator(self.config.seed, "views", batch_idx, self.global_rank)
        drawn = self.views(batch["image"], draw, n=self.config.n_views, aspect=batch["aspect"])
        views = [view.contiguous(memory_format=torch.channels_last) for view in drawn]
        labels = None if self.labels is None else self.labels[batch["index"].cpu()].to(self.device)
        loss = self.checked_loss(views, labels, batch["index"], batch_idx)
        self.trainer.train_dataloader.trained = batch_idx + 1  # type: ignore[union-attr]
        return {
            "loss": loss,
            "value": loss.detach(),
            # The losses take negatives from all processes.
            "no_signal": self.method.no_signal(len(batch["index"]) * self.trainer.world_size, self.config.n_views),
            "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
        }

    def checked_loss(self, views: list[Tensor], labels: Tensor | None, index: Tensor, batch_idx: int) -> Tensor:
        """The method's loss; a non-finite one, or embeddings that the loss refuses for being so, stop the run."""
        error: ValueError | None = None
        try:
            loss = self.method(views, labels)
            if bool(torch.isfinite(loss)):
                return loss
        except ValueError as refused:
            error = refused
        inputs = {f"view{i}": view for i, view in enumerate(views)} | {"index": index}
        culprit = first_nonfinite(self.method, inputs, lambda: self.method(views, labels))
        if culprit is None and error is not None:
            raise error
        path = save_batch(inputs, self.folder)
        raise NonFiniteError(
            f"the loss became non-finite at step {batch_idx + 1}; first non-finite tensor: {culprit or 'the loss itself'}. "
            f"The batch is saved in {path}. Usual remedies: a lower lr, a longer warm-up, precision 32, a higher temperature"
        )

    def configure_optimizers(self) -> Any:
        """The optimiser, and its learning rate as a function of the step."""
        optimizer = build_optimizer(self.method, self.config)
        warmup = round(self.config.warmup_epochs * self.steps_per_epoch / self.config.accumulate)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: warmup_cosine(step, total=self.updates, warmup=warmup)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
