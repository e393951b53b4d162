"""LARS, the optimiser of SimCLR's large batches."""

from collections.abc import Callable, Iterable
from typing import Any

import torch


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You et al., 2017), with SimCLR's settings.

    For each weight tensor, with g the gradient plus weight decay::

        local = trust · ‖w‖ / ‖g‖       (1 where either norm is 0, and for groups with adapt=False)
        v ← momentum · v + local · g
        w ← w − lr · v

    Args:
        params: parameters or groups; a group may say ``adapt=False`` (norms and biases).
        lr: learning rate after warm-up; SimCLR: 0.3 · batch / 256 for ImageNet, 1.0 for CIFAR.
        momentum: 0.9 in the paper.
        weight_decay: added to the gradient before the norms are taken.
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
        """One update."""
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
