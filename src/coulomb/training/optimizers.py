"""Optimizers, their parameter groups and the learning-rate schedule."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from coulomb.errors import InputError
from coulomb.runs.config import Config


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Groups parameters into weights with decay, and norms, biases and other vectors and scalars without.

    Submodules named in the model's ``constant_lr`` (SimSiam's predictor) form separate groups with ``constant_lr=True``,
    whose learning rate does not follow the schedule.
    """
    constant = {id(p) for name in getattr(model, "constant_lr", ()) for p in getattr(model, name).parameters()}
    groups = []
    for is_constant in (False, True):
        trained = [p for p in model.parameters() if p.requires_grad and (id(p) in constant) is is_constant]
        for decays in (True, False):
            chosen = [p for p in trained if (p.ndim > 1) is decays]
            decay = weight_decay if decays else 0.0
            groups.append({"params": chosen, "weight_decay": decay, "constant_lr": is_constant})
    return [group for group in groups if group["params"]]


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Builds SGD with momentum, AdamW or LARS, by ``config.optimizer``.

    Raises:
        InputError: the model has no parameters to train.
    """
    groups = parameter_groups(model, config.weight_decay)
    if not groups:
        raise InputError(f"method={config.method!r}: has no parameters to train; assign the encoder to an attribute")
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr)
    if config.optimizer == "lars":
        for group in groups:
            group["adapt"] = group["params"][0].ndim > 1
        return LARS(groups, lr=config.lr, momentum=config.momentum)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You et al., 2017), with SimCLR's settings.

    For each weight tensor, with g the gradient plus weight decay::

        local = trust · ‖w‖ / ‖g‖       (1 where either norm is 0, and for groups with adapt=False)
        v ← momentum · v + local · g
        w ← w − lr · v

    Args:
        params: parameters or groups; ``adapt=False`` in a group disables the scaling (norms and biases).
        lr: learning rate after warm-up; SimCLR: 0.3 · batch / 256 for ImageNet, 1.0 for CIFAR.
        momentum: 0.9 in the paper.
        weight_decay: added to the gradient before the norms are computed.
        trust: the trust coefficient, 0.001 in both papers.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
    ):
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": True}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one update."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                gradient = weight.grad.add(weight, alpha=group["weight_decay"])
                if group["adapt"]:
                    size, slope = weight.norm(), gradient.norm()
                    local = torch.where((size > 0) & (slope > 0), group["trust"] * size / slope, torch.ones_like(size))
                    gradient = gradient * local
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight)
                velocity = state["momentum"].mul_(group["momentum"]).add_(gradient)
                weight.add_(velocity, alpha=-group["lr"])
        return loss


def rate(kind: str, step: int, *, total: int, warmup: int, drops: Sequence[float] = ()) -> float:
    """Returns the factor on the peak learning rate: a linear warm-up from 1/warmup to 1, then the schedule ``kind``.

    ``cosine``: half a cosine down to 0; ``step``: ×0.1 at each fraction of the run in ``drops``; ``constant``: 1. As a
    function of the step alone, it cannot be reset by resuming.

    Args:
        kind: one of `coulomb.runs.config.SCHEDULES`.
        step: completed updates, 0 … total.
        total: updates in the whole run, including the warm-up.
        warmup: updates of linear warm-up; 0 for none.
        drops: fractions of ``total``.
    """
    if step < warmup:
        return (step + 1) / warmup
    if kind == "cosine":
        progress = (step - warmup) / max(total - warmup, 1)
        return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return 0.1 ** sum(step >= share * total for share in drops) if kind == "step" else 1.0
