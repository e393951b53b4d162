"""Gradients and weights during training: the pulse of an update, and the gradient norm per class."""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.nn.utils import get_total_norm

from coulomb.metrics.geometry import drift
from coulomb.metrics.gradients import class_gradient_norms
from coulomb.models.features import frozen
from coulomb.negatives import MomentumEncoder
from coulomb.training.order import TrainingBatch
from coulomb.training.record.journal import Journal
from coulomb.training.watching.loss_inputs import READERS, Labels, LossInputs, read_inputs

VIEWS = 32  # images on which the two encoders are compared


class Pulse(pl.Callback):
    """Measures the first update and every ``period``-th one, and adds to its line in ``metrics.jsonl``:

    - for the negatives of the loss (`coulomb.metrics.hardness.Hardness`; means over some anchors): their number
      ``negatives``; ``effective_negatives``; ``top1_gradient``, ``top1pct_gradient``, ``top10pct_gradient``,
      the shares of the repulsive gradient; ``false_negative_gradient``, the share of negatives of the anchor's class, if
      labels exist and the loss does not use them;
    - ``train_positive_similarity``: mean cosine of two views of an image;
    - ``gradient_norm``: of all parameters together; ``update_ratio``: ‖Δθ‖/‖θ‖ of the encoder's weights over the update;
    - ``drift``: `coulomb.metrics.geometry.drift` of the momentum encoder on views of the batch, both in eval mode.

    Values that a method does not have are left out. The measurement does not affect the training: hooks exist for one batch
    only, no random number is drawn, and no state changes. With several processes, only the first one's images count.

    Args:
        period: updates.
        labels: labels of the training samples by train_row, −1 unknown, for the keys of a queue or bank; None without labels.
    """

    def __init__(self, period: int, labels: Tensor | None):
        self.period, self.labels = period, labels
        self.figures: dict[str, float] = {}
        self.hooks: list[Any] = []
        self.view: Tensor | None = None
        self.before: list[Tensor] = []

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: TrainingBatch, batch_idx: int) -> None:
        """Registers hooks if this batch completes an update that is measured."""
        self.figures, update = {}, trainer.global_step + 1
        due = self.period and (update == 1 or update % self.period == 0)
        if not due or not module.completes_update(batch_idx) or not trainer.is_global_zero:
            return
        own = None if batch.labels is None else batch.labels.cpu()
        labels, method = Labels(own, self.labels), module.method
        losses = [part for part in method.modules() if any(isinstance(part, kind) for kind in READERS)]
        self.hooks = [part.register_forward_hook(self._listener(method, labels), with_kwargs=True) for part in losses]
        self.hooks.append(method.tower.encoder.register_forward_pre_hook(self._keep_view))
        self.hooks.append(method.tower.head.register_forward_hook(self._listen_to_head(len(batch))))

    def _listener(self, method: nn.Module, labels: Labels) -> Any:
        def listen(loss: nn.Module, given: tuple[Any, ...], named: dict[str, Any], value: Any) -> None:
            with torch.autocast(next(method.parameters()).device.type, enabled=False):
                self._note(read_inputs(loss, given, named, method, labels))

        return listen

    def _listen_to_head(self, images: int) -> Any:
        def listen(head: nn.Module, inputs: Any, embeddings: Tensor) -> None:
            # All methods concatenate views, so rows repeat the order of the batch.
            if embeddings.ndim == 2 and images and len(embeddings) >= 2 * images and len(embeddings) % images == 0:
                first, second = embeddings.detach().float().split(images)[:2]
                self._note(LossInputs(positive=float(cosine_similarity(first, second).mean())))

        return listen

    def _note(self, inputs: LossInputs) -> None:
        values: dict[str, float | None] = {"train_positive_similarity": inputs.positive}
        if (hard := inputs.hardness) is not None:
            values |= {
                "negatives": hard.negatives,
                "effective_negatives": hard.effective_negatives,
                "top1_gradient": hard.top1,
                "top1pct_gradient": hard.top1pct,
                "top10pct_gradient": hard.top10pct,
                "false_negative_gradient": hard.same_class,
            }
        for name, value in values.items():  # the first of several calls per batch
            if value is not None and math.isfinite(value):
                self.figures.setdefault(name, value)

    def _keep_view(self, encoder: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self.view is None and inputs and isinstance(inputs[0], Tensor):
            self.view = inputs[0][:VIEWS].detach()

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: Any, optimizer: Any) -> None:
        """Measures the gradients, and copies the weights before the update."""
        if not self.hooks:
            return
        self._remove_hooks()
        gradients = [p.grad for p in module.method.parameters() if p.grad is not None]
        self._keep("gradient_norm", float(get_total_norm(gradients)))
        self.before = [p.detach().clone() for p in module.method.tower.encoder.parameters() if p.requires_grad]

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Measures how far the update moved the weights and the momentum encoder, before its line is written."""
        self._remove_hooks()
        if self.before:
            now = [p.detach() for p in module.method.tower.encoder.parameters() if p.requires_grad]
            size = float(get_total_norm(self.before))
            moved = float(get_total_norm([new - old for new, old in zip(now, self.before, strict=True)]))
            self._keep("update_ratio", moved / size if size else math.nan)
        if self.view is not None:
            self._keep("drift", measure_drift(module.method, self.view))
        self.before, self.view = [], None

    def _keep(self, name: str, value: float | None) -> None:
        if value is not None and math.isfinite(value):
            self.figures[name] = value

    def _remove_hooks(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []


@torch.no_grad()
def measure_drift(method: Any, view: Tensor) -> float | None:
    """Computes `drift` of a method's momentum encoder on ``view`` [b, C, H, W]; None without one of that kind."""
    momentum = next((part for part in method.modules() if isinstance(part, MomentumEncoder)), None)
    if momentum is None or len(view) == 0:
        return None
    with frozen(method):
        online, slow = method.tower(view).float(), momentum(view).float()
    if online.shape != slow.shape or not bool(online.isfinite().all() and slow.isfinite().all()):
        return None
    return drift(online, slow)


class ClassGradients(pl.Callback):
    """Writes one line with every live evaluation, if training images have labels:

    - ``class_gradient_norm`` [C]: mean of ‖∂(B·loss)/∂h_i‖ over the views of class c since the previous line, where h_i are
      the encoder's features of the view and B is the batch size (losses are means over it); null for a class without views;
    - ``class_gradient_views`` [C]: the number of these views.

    The gradient is computed anyway, so this costs one norm per row. Features are used, not embeddings, because every method
    has them, and gradients through a classifier (PaCo's centers) reach them, too. Views that are encoded without gradient do
    not count. With several processes, all their images count.
    """

    def __init__(self, journal: Journal, num_classes: int):
        self.journal, self.num_classes = journal, num_classes
        self.sums = torch.zeros(num_classes, dtype=torch.float64)
        self.counts = torch.zeros(num_classes, dtype=torch.int64)
        self.fresh = torch.zeros(2, num_classes, dtype=torch.float64)  # sums and counts of this batch and process
        self.labels: Tensor | None = None
        self.scale = 1.0

    def state_dict(self) -> dict[str, Any]:
        """Returns the sums and counts so far, for the checkpoint."""
        return {"sums": self.sums, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the sums and counts."""
        self.sums, self.counts = state["sums"].clone(), state["counts"].clone()

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Registers a hook for the encoder's features."""
        self.handle = module.method.tower.encoder.register_forward_hook(self._listen)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Removes the hook before the encoder is saved."""
        self.handle.remove()

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: TrainingBatch, batch_idx: int) -> None:
        """Sets the labels of the next features."""
        self.labels = batch.labels
        self.scale = len(batch) / module.weight(batch) * module.config.accumulate

    def _listen(self, encoder: Any, inputs: Any, features: Tensor) -> None:
        if self.labels is None or not features.requires_grad or len(features) % max(len(self.labels), 1):
            return
        # All methods concatenate views, so rows repeat the order of the batch.
        labels = self.labels.repeat(len(features) // len(self.labels))

        def add(gradient: Tensor) -> None:
            if bool(gradient.isfinite().all()):  # non-finite losses are reported elsewhere
                sums, counts = class_gradient_norms(gradient * self.scale, labels.to(gradient.device), self.num_classes)
                self.fresh += torch.stack([sums, counts.double()])

        features.register_hook(add)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Sums over processes; writes and resets when enough epochs are complete."""
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
        """Sums over processes at every batch, so that all have the same totals, and the checkpoint of one is valid for all."""
        if torch.distributed.is_initialized():
            everywhere = self.fresh.to(module.device, torch.float32)
            torch.distributed.all_reduce(everywhere)
            self.fresh = everywhere.cpu().double()
        self.sums, self.counts = self.sums + self.fresh[0], self.counts + self.fresh[1].long()
        self.fresh = torch.zeros_like(self.fresh)
