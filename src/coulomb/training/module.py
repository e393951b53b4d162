"""The training step as a Lightning module, and what is saved when a loss becomes non-finite."""

import io
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from coulomb.data.views import ViewMaker
from coulomb.errors import InputError, NonFiniteError
from coulomb.models.saving import write_atomically
from coulomb.negatives import MemoryBank, Queue
from coulomb.randomness import derive_seed, generator
from coulomb.runs.config import Config
from coulomb.training.optimizers import build_optimizer, rate


class ContrastiveTraining(pl.LightningModule):
    """Views of the batch on the device, the method's loss, one update: everything else is in callbacks.

    Lightning sees the whole run as one pass over ``RunLoader``: the step is the only clock, and the epoch is computed
    from it. So a run can stop and start again at any step.

    Args:
        method: module with ``forward(views, labels, index) -> loss``; see `coulomb.methods`.
        views: the augmentations.
        labels: [N] labels by image index, −1 unknown; None where there are none.
        positions: [N] position among the training images by image index.
        config: the run's options.
        steps_per_epoch: batches an epoch and process.
        folder: the run folder; a batch that broke the run is saved there.
    """

    def __init__(
        self,
        method: nn.Module,
        views: ViewMaker,
        labels: Tensor | None,
        positions: Tensor,
        config: Config,
        steps_per_epoch: int,
        folder: Path,
    ):
        super().__init__()
        # Convolutions run faster on it, on CPUs and on tensor cores; the numbers are the same up to rounding.
        self.method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.views, self.config = views, config
        self.labels, self.positions = labels, positions
        self.steps_per_epoch = steps_per_epoch
        self.folder = folder
        # Queues and banks are alike on all processes by themselves: to send them at each step would be a waste.
        self._ddp_params_and_buffers_to_ignore = [
            f"{name}.{buffer}"
            for name, part in self.named_modules()
            if isinstance(part, Queue | MemoryBank)
            for buffer, _ in part.named_buffers()
        ]

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
        index = batch["index"].cpu()
        labels = None if self.labels is None else self.labels[index].to(self.device)
        loss = self.checked_loss(views, labels, self.positions[index].to(self.device), batch["index"], batch_idx)
        self.trainer.train_dataloader.trained = batch_idx + 1  # type: ignore[union-attr]
        return {
            "loss": loss,
            "value": self.mean_over_processes(loss.detach()),
            "no_signal": self.known_loss("no_signal", len(batch["index"])),
            "floor": self.known_loss("floor", len(batch["index"])),
            "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
        }

    def known_loss(self, name: str, images: int) -> float | None:
        """The loss of knowing nothing, or its floor, if the method tells it, for ``images`` a process: losses take their
        negatives from all processes.
        """
        value_of = getattr(self.method, name, None)
        return None if value_of is None else value_of(images * self.trainer.world_size, self.config.n_views)

    def mean_over_processes(self, loss: Tensor) -> Tensor:
        """Each process's loss is of its own images: their mean is the run's."""
        if self.trainer.world_size > 1:
            loss = loss.clone()
            torch.distributed.all_reduce(loss)
            loss /= self.trainer.world_size
        return loss

    def method_figures(self) -> dict[str, float]:
        """What the method itself has to tell about this update."""
        told = getattr(self.method, "figures", None)
        return {} if told is None else dict(told())

    def on_after_backward(self) -> None:
        """The method may now remember the batch: fill a queue, write its slots of a bank."""
        self._tell("after_batch")

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """One update; then the method may follow it with an average. The checkpoint comes after both."""
        super().optimizer_step(*args, **kwargs)
        self._tell("after_update", (self.trainer.global_step + 1) / self.updates)

    def _tell(self, hook: str, *arguments: float) -> None:
        if (told := getattr(self.method, hook, None)) is not None:
            with torch.no_grad():
                told(*arguments)

    def checked_loss(
        self, views: list[Tensor], labels: Tensor | None, positions: Tensor, index: Tensor, batch_idx: int
    ) -> Tensor:
        """The method's loss; a non-finite one, or embeddings that the loss refuses for being so, stop the run."""
        error: ValueError | None = None
        try:
            loss = self.method(views, labels, positions)
            if bool(torch.isfinite(loss)):
                return loss
        except ValueError as refused:
            error = refused
        inputs = {f"view{i}": view for i, view in enumerate(views)} | {"index": index}
        culprit = first_nonfinite(self.method, inputs, lambda: self.method(views, labels, positions))
        if culprit is None and error is not None:
            raise error
        path = save_batch(inputs, self.folder)
        raise NonFiniteError(
            f"the loss became non-finite at step {batch_idx + 1}; first non-finite tensor: {culprit or 'the loss itself'}. "
            f"The batch is saved in {path}. Usual remedies: a lower lr, a longer warm-up, precision 32, a higher temperature"
        )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raises `InputError` if the checkpoint is of another optimizer than ``config.optimizer``."""
        own = [set(group) for group in build_optimizer(self.method, self.config).param_groups]
        saved = [set(group) for state in checkpoint["optimizer_states"] for group in state["param_groups"]]
        if len(own) != len(saved) or not all(mine <= theirs for mine, theirs in zip(own, saved, strict=True)):
            raise InputError(
                f"optimizer={self.config.optimizer!r} in config.yaml: the checkpoint was written by another optimizer; "
                "restore config.yaml from a copy of the run folder"
            )

    def configure_optimizers(self) -> Any:
        """The optimiser, and its learning rate as a function of the step."""
        optimizer, config = build_optimizer(self.method, self.config), self.config
        warmup = round(config.warmup_epochs * self.steps_per_epoch / config.accumulate)

        def scheduled(step: int) -> float:
            return rate(config.schedule, step, total=self.updates, warmup=warmup, drops=config.lr_drops)

        def constant(step: int) -> float:
            return 1.0

        by_group: list[Any] = [constant if group["constant_lr"] else scheduled for group in optimizer.param_groups]
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, by_group)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def first_nonfinite(model: nn.Module, inputs: dict[str, Tensor], forward: Callable[[], Tensor]) -> str | None:
    """The first tensor that is NaN or infinite, by name; None when all are finite.

    Looked at in this order: the parameters, the inputs, then, in a repeated forward pass, the output of every module as
    it is computed. Buffers are not: the failed pass itself has already spoiled the running statistics.
    """
    return _first_in(model, inputs) or _first_in_forward(model, forward)


def save_batch(inputs: dict[str, Tensor], folder: Path) -> Path:
    """Keep what the step was fed, in ``nonfinite-batch.pt``; read it with ``torch.load(path, weights_only=True)``."""
    path = folder / "nonfinite-batch.pt"
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu() for name, tensor in inputs.items()}, buffer)
    write_atomically(path, buffer.getvalue())
    return path


def _first_in(model: nn.Module, inputs: dict[str, Tensor]) -> str | None:
    for kind, tensors in (
        ("parameter", model.named_parameters()),
        ("input", inputs.items()),
    ):
        for name, tensor in tensors:
            if not bool(torch.isfinite(tensor).all()):
                return f"{kind} {name}"
    return None


def _first_in_forward(model: nn.Module, forward: Callable[[], Tensor]) -> str | None:
    found: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(f"output of {name or 'the method'} ({type(module).__name__})")

        return hook

    hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad(), suppress(ValueError):  # the loss itself refuses what we are looking for
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
