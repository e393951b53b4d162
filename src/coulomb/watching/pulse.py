"""The pulse of a training: who pushes, how hard, and how far the network moves, every few updates."""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity
from torch.nn.utils import get_total_norm

from coulomb.metrics.features import frozen
from coulomb.metrics.geometry import drift
from coulomb.negatives import MomentumEncoder
from coulomb.watching.seen import LOOKING, Labels, Seen, look

VIEWS = 32  # images that the two encoders are compared on


class Pulse(pl.Callback):
    """At the first update and every ``period``-th, adds to the line of the update what can be told of it:

    - of the loss's negatives, as the loss saw them (`coulomb.diagnostics.Hardness`; means over some anchors):
      ``negatives``, their number; ``effective_negatives``; ``top1_gradient``, ``top1pct_gradient``, ``top10pct_gradient``,
      the shares of the repulsive gradient; ``false_negative_gradient``, the share of negatives of the anchor's class,
      where labels exist and the loss does not use them;
    - ``train_positive_similarity``: mean cosine of two views of an image;
    - ``gradient_norm``: of all parameters together; ``update_ratio``: ‖Δθ‖/‖θ‖ of the encoder's weights over the update;
    - ``drift``: `coulomb.diagnostics.drift` of the momentum encoder on views of the batch, both in eval mode.

    What a method does not have is left out. It only looks: hooks are there for the one batch, no random number is drawn, no
    state moves. On several processes it tells of the first one's images.
    """

    def __init__(self, period: int):
        self.period = period
        self.figures: dict[str, float] = {}
        self.hooks: list[Any] = []
        self.view: Tensor | None = None
        self.before: list[Tensor] = []
        self.by_position: Tensor | None = None

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Labels by position among the training images, for a queue's and a bank's keys."""
        if module.labels is None or not len(module.labels):
            return
        at, size = module.positions, int(module.positions.max()) + 1
        images = (at >= 0).nonzero().squeeze(1)
        self.by_position = torch.full((size,), -1).index_copy_(0, at[images], module.labels[images].long())

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: dict[str, Any], batch_idx: int) -> None:
        """Listen, if this batch completes an update whose turn it is."""
        self.figures, update = {}, trainer.global_step + 1
        due = self.period and (update == 1 or update % self.period == 0)
        if not due or not module.completes_update(batch_idx) or not trainer.is_global_zero:
            return
        own = None if module.labels is None else module.labels[batch["index"].cpu()]
        labels, method = Labels(own, self.by_position), module.method
        losses = [part for part in method.modules() if any(isinstance(part, kind) for kind in LOOKING)]
        self.hooks = [part.register_forward_hook(self._listener(method, labels), with_kwargs=True) for part in losses]
        self.hooks.append(method.encoder.register_forward_pre_hook(self._keep_view))
        if isinstance(head := getattr(method, "head", None), nn.Module):
            self.hooks.append(head.register_forward_hook(self._listen_to_head(len(batch["index"]))))

    def _listener(self, method: nn.Module, labels: Labels) -> Any:
        def listen(loss: nn.Module, given: tuple[Any, ...], named: dict[str, Any], value: Any) -> None:
            with torch.autocast(next(method.parameters()).device.type, enabled=False):
                self._note(look(loss, given, named, method, labels))

        return listen

    def _listen_to_head(self, images: int) -> Any:
        def listen(head: nn.Module, inputs: Any, embeddings: Tensor) -> None:
            # All methods stack views one below the other.
            if embeddings.ndim == 2 and images and len(embeddings) >= 2 * images and len(embeddings) % images == 0:
                first, second = embeddings.detach().float().split(images)[:2]
                self._note(Seen(positive=float(cosine_similarity(first, second).mean())))

        return listen

    def _note(self, seen: Seen) -> None:
        found: dict[str, float | None] = {"train_positive_similarity": seen.positive}
        if (hard := seen.hardness) is not None:
            found |= {
                "negatives": hard.negatives,
                "effective_negatives": hard.effective_negatives,
                "top1_gradient": hard.top1,
                "top1pct_gradient": hard.top1pct,
                "top10pct_gradient": hard.top10pct,
                "false_negative_gradient": hard.same_class,
            }
        for name, value in found.items():  # of several calls in a batch the first counts
            if value is not None and math.isfinite(value):
                self.figures.setdefault(name, value)

    def _keep_view(self, encoder: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self.view is None and inputs and isinstance(inputs[0], Tensor):
            self.view = inputs[0][:VIEWS].detach()

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: Any, optimizer: Any) -> None:
        """Gradients are complete, weights not yet moved."""
        if not self.hooks:
            return
        self._forget_hooks()
        gradients = [p.grad for p in module.method.parameters() if p.grad is not None]
        self._keep("gradient_norm", float(get_total_norm(gradients)))
        self.before = [p.detach().clone() for p in module.method.encoder.parameters() if p.requires_grad]

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Weights have moved, and so has the momentum encoder; the line of the update is about to be written."""
        self._forget_hooks()
        if self.before:
            now = [p.detach() for p in module.method.encoder.parameters() if p.requires_grad]
            size = float(get_total_norm(self.before))
            moved = float(get_total_norm([new - old for new, old in zip(now, self.before, strict=True)]))
            self._keep("update_ratio", moved / size if size else math.nan)
        if self.view is not None:
            self._keep("drift", drift_of(module.method, self.view))
        self.before, self.view = [], None

    def _keep(self, name: str, value: float | None) -> None:
        if value is not None and math.isfinite(value):
            self.figures[name] = value

    def _forget_hooks(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []


@torch.no_grad()
def drift_of(method: Any, view: Tensor) -> float | None:
    """`drift` of a method's momentum encoder on ``view`` [b,C,H,W]; None where it has none, or none of encoder and head."""
    momentum = next((part for part in method.modules() if isinstance(part, MomentumEncoder)), None)
    if momentum is None or len(view) == 0:
        return None
    with frozen(method):
        online, slow = method.head(method.encoder(view)).float(), momentum(view).float()
    if online.shape != slow.shape or not bool(online.isfinite().all() and slow.isfinite().all()):
        return None
    return drift(online, slow)
