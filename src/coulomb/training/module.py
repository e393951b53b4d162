"""The training step as a Lightning module, and what is saved when a loss becomes non-finite."""

import io
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError, NonFiniteError
from coulomb.ground.files import write_atomically
from coulomb.ground.randomness import seed_layers
from coulomb.methods import Method
from coulomb.models import ViewRows
from coulomb.models.tuning import HeadFirst
from coulomb.negatives import MemoryBank, Queue
from coulomb.training.optimizers import build_optimizer, rate
from coulomb.training.order import ColumnViews, TrainingBatch, draw_views
from coulomb.training.plan.config import Config
from coulomb.training.stay_close import Seen, StayClose, recording


class ContrastiveTraining(pl.LightningModule):
    """Draws the views of a batch on the device, computes the method's loss and makes one update. All else is in callbacks.

    Lightning runs the whole training as one epoch over ``RunLoader``: the step is the only clock, and the epoch is derived
    from it. Therefore a run can stop and resume at any step.

    Args:
        method: the method, see `coulomb.methods.Method`.
        views: how the views of each column are drawn.
        config: the options of the run.
        steps_per_epoch: batches per epoch and process.
        folder: the run folder, where a batch with a non-finite loss is saved.
        stay_close: the penalty of ``config.stay_close``, if that is not 0.
    """

    def __init__(
        self,
        method: Method,
        views: Mapping[str, ColumnViews],
        config: Config,
        steps_per_epoch: int,
        folder: Path,
        stay_close: StayClose | None = None,
    ):
        super().__init__()
        # Convolutions are faster in this layout on CPUs and tensor cores, with the same results up to rounding.
        self.method = method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.views, self.config = views, config
        self.steps_per_epoch = steps_per_epoch
        self.folder, self.stay_close = folder, stay_close
        self.head_first = HeadFirst(method)
        # Queues and banks are identical in all processes by construction, so DDP need not broadcast them at each step.
        self._ddp_params_and_buffers_to_ignore = [
            f"{name}.{buffer}"
            for name, part in self.named_modules()
            if isinstance(part, Queue | MemoryBank)
            for buffer, _ in part.named_buffers()
        ]

    @property
    def updates(self) -> int:
        """Optimizer steps in the whole run."""
        return math.ceil(self.config.epochs * self.steps_per_epoch / self.config.accumulate)

    def updates_in(self, epochs: float) -> int:
        """Returns the number of updates in ``epochs`` epochs, rounded."""
        return round(epochs * self.steps_per_epoch / self.config.accumulate)

    def completes_update(self, batch_idx: int) -> bool:
        """Returns True if the optimizer steps after this batch: always, unless gradients are accumulated."""
        done = batch_idx + 1
        return done % self.config.accumulate == 0 or done == self.config.epochs * self.steps_per_epoch

    def on_train_start(self) -> None:
        """Gives all processes the same starting network."""
        if self.stay_close is not None:
            self.stay_close.share(self.device)

    def weight(self, batch: TrainingBatch) -> float:
        """Returns the samples of this process relative to the mean over processes: 1 if shares are even."""
        return (len(batch) + len(batch.failed)) * self.trainer.world_size / batch.share.total

    def training_step(self, batch: TrainingBatch, batch_idx: int) -> dict[str, Any]:
        """Computes the loss of one batch; ``batch_idx`` counts from the start of the run."""
        config, weight, penalty = self.config, self.weight(batch), self.stay_close
        images = batch.share.total - len(batch.failed) * self.trainer.world_size
        seed_layers(self.device, config.seed, "step", batch_idx, self.global_rank)
        views = draw_views(self.views, batch, seed=config.seed, step=batch_idx, rank=self.global_rank)
        self.head_first.set(batch_idx // config.accumulate < self.updates_in(config.head_epochs))
        views_seen: AbstractContextManager[Seen] = nullcontext([])
        if penalty is not None:
            views_seen = recording(self.method.tower.encoder)
        with views_seen as seen:
            loss = self.checked_loss(views, batch, batch_idx)
        if self.method.local_mean:
            loss = weight * loss
        distance = None if penalty is None else penalty.distance(seen)
        distance = None if distance is None else weight * distance
        return {
            "loss": loss if distance is None or penalty is None else loss + penalty.weight * distance,
            "value": self.mean_of_processes(loss),
            "stay_close": None if distance is None else self.mean_of_processes(distance),
            "no_signal": self.method.no_signal(images, config.n_views),
            "floor": self.method.floor(images, config.n_views),
            "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
            "images": images,
        }

    def mean_of_processes(self, value: Tensor) -> Tensor:
        """Returns the mean of a scalar over processes, without gradient."""
        mean: Tensor = self.trainer.strategy.reduce(value.detach().clone(), reduce_op="mean")
        return mean

    @torch.no_grad()
    def on_after_backward(self) -> None:
        """Calls the method's hook: it may fill a queue or write to a memory bank."""
        self.method.after_batch()

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Makes one update, then calls the method's hook, which may update an average. The checkpoint follows both."""
        super().optimizer_step(*args, **kwargs)
        with torch.no_grad():
            self.method.after_update((self.trainer.global_step + 1) / self.updates)

    def checked_loss(self, views: ViewRows, batch: TrainingBatch, batch_idx: int) -> Tensor:
        """Returns the method's loss.

        Raises:
            NonFiniteError: the loss is NaN or infinite, or it refused embeddings that are.
        """
        given, error = (views, batch.labels, batch.train_row), None
        try:
            loss: Tensor = self.method(*given)
            if bool(torch.isfinite(loss)):
                return loss
        except ValueError as refused:
            error = refused
        inputs = views.tensors() | {"sample": batch.sample}
        culprit = first_nonfinite(self.method, inputs, lambda: self.method(*given))
        if culprit is None and error is not None:
            raise error
        path = save_batch(inputs, self.folder)
        raise NonFiniteError(
            f"the loss became non-finite at step {batch_idx + 1}; first non-finite tensor: {culprit or 'the loss itself'}. "
            f"The batch is saved in {path}. Usual remedies: a lower lr, a longer warm-up, precision 32, a higher temperature"
        )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raises `InputError` if the checkpoint was written by another optimizer than ``config.optimizer``."""
        own = [set(group) for group in build_optimizer(self.method, self.config).param_groups]
        saved = [set(group) for state in checkpoint["optimizer_states"] for group in state["param_groups"]]
        if len(own) != len(saved) or not all(mine <= theirs for mine, theirs in zip(own, saved, strict=True)):
            raise InputError(
                f"optimizer={self.config.optimizer!r} in config.yaml: the checkpoint was written by another optimizer; "
                "restore config.yaml from a copy of the run folder"
            )

    def configure_optimizers(self) -> Any:
        """Returns the optimizer and its learning-rate schedule, a function of the step."""
        optimizer, config = build_optimizer(self.method, self.config), self.config
        warmup = self.updates_in(config.warmup_epochs)

        def scheduled(step: int) -> float:
            return rate(config.schedule, step, total=self.updates, warmup=warmup, drops=config.lr_drops)

        def constant(step: int) -> float:
            return 1.0

        by_group: list[Any] = [constant if group["constant_lr"] else scheduled for group in optimizer.param_groups]
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, by_group)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def first_nonfinite(model: nn.Module, inputs: dict[str, Tensor], forward: Callable[[], Tensor]) -> str | None:
    """Returns the name of the first tensor that is NaN or infinite; None if all are finite.

    The order is: parameters, inputs, then, in a repeated forward pass, the output of every module as it is computed. Buffers
    are skipped, because the failed pass has already changed the running statistics.
    """
    for kind, tensors in (("parameter", model.named_parameters()), ("input", inputs.items())):
        for name, tensor in tensors:
            if not bool(torch.isfinite(tensor).all()):
                return f"{kind} {name}"
    return _first_nonfinite_output(model, forward)


def _first_nonfinite_output(model: nn.Module, forward: Callable[[], Tensor]) -> str | None:
    nonfinite: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not nonfinite and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                nonfinite.append(f"output of {name or 'the method'} ({type(module).__name__})")

        return hook

    hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad(), suppress(ValueError):  # the loss refuses non-finite embeddings
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return nonfinite[0] if nonfinite else None


def save_batch(inputs: dict[str, Tensor], folder: Path) -> Path:
    """Saves the inputs of a step to ``nonfinite-batch.pt``; read it with ``torch.load(path, weights_only=True)``."""
    path = folder / "nonfinite-batch.pt"
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu() for name, tensor in inputs.items()}, buffer)
    write_atomically(path, buffer.getvalue())
    return path
