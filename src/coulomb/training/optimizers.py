"""Optimizers, their parameter groups and the learning-rate schedule."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.models.blocks import ordered_blocks
from coulomb.training.plan.config import Config

VECTORS = 0.15  # root mean square of Muon's updates of vectors, in learning rates
TINY = 1e-12


def parameter_groups(model: nn.Module, weight_decay: float, layer_decay: float = 1.0) -> list[dict]:
    """Groups parameters into weights with decay, and norms, biases and other vectors and scalars without.

    Submodules named in the model's ``constant_lr`` (SimSiam's predictor) form separate groups with ``constant_lr=True``,
    whose learning rate does not follow the schedule. ``lr_factor`` of a group multiplies the learning rate; groups are in
    descending order of it, see `layer_factors`.
    """
    constant = {id(p) for name in getattr(model, "constant_lr", ()) for p in getattr(model, name).parameters()}
    factors = layer_factors(model, layer_decay)
    groups: dict[tuple[bool, float, bool], dict] = {}
    for p in model.parameters():
        if p.requires_grad:
            is_constant, factor, decays = id(p) in constant, factors.get(id(p), 1.0), p.ndim > 1
            group = {"params": [], "weight_decay": weight_decay if decays else 0.0, "constant_lr": is_constant}
            groups.setdefault((is_constant, -factor, not decays), group | {"lr_factor": factor})["params"].append(p)
    return [groups[key] for key in sorted(groups)]


def layer_factors(model: nn.Module, layer_decay: float) -> dict[int, float]:
    """Returns the factors on the learning rates of the backbone's parameters, by id: d^(L + 1 − i) for block i of L.

    The stem is block 0. What follows the last block, and everything outside the backbone, has factor 1, as in BEiT (Bao et
    al., 2022). See `coulomb.models.blocks.ordered_blocks`.
    """
    backbone = getattr(getattr(getattr(model, "tower", None), "encoder", None), "backbone", None)
    if layer_decay == 1.0 or backbone is None:
        return {}
    groups = ordered_blocks(backbone)
    factors = {id(p): layer_decay ** (len(groups) - 1) for p in backbone.parameters()}
    for place, group in enumerate(groups):
        factors |= {id(p): layer_decay ** (len(groups) - 1 - place) for part in group for p in part.parameters()}
    return factors


def build_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Builds SGD with momentum, AdamW, LARS or Muon, by ``config.optimizer``.

    Raises:
        InputError: the model has no parameters to train.
    """
    groups = parameter_groups(model, config.weight_decay, config.layer_decay)
    if not groups:
        raise InputError(f"method={config.method!r}: has no parameters to train; assign the tower to self.tower")
    for group in groups:
        group["lr"] = config.lr * group.pop("lr_factor")
    if config.optimizer == "adamw":
        # One pass over the vectors of a vocabulary: 32,000 × 256 take 6 instead of 52 ms. Runs on images keep their bits.
        return torch.optim.AdamW(groups, lr=config.lr, fused=True if config.columns else None)
    if config.optimizer == "muon":
        return Muon(groups, lr=config.lr)
    if config.optimizer == "lars":
        for group in groups:
            group["adapt"] = group["params"][0].ndim > 1
        return LARS(groups, lr=config.lr, momentum=config.momentum)
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)


class MomentumOptimizer(torch.optim.Optimizer):
    """An optimizer that updates each weight by its gradient and one momentum buffer, which begins at zero."""

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
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight)
                self.update(weight, weight.grad, state["momentum"], group)
        return loss

    def update(self, weight: Tensor, gradient: Tensor, momentum: Tensor, group: dict[str, Any]) -> None:
        """Updates one weight and its momentum in place."""
        raise NotImplementedError


class LARS(MomentumOptimizer):
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

    def update(self, weight: Tensor, gradient: Tensor, momentum: Tensor, group: dict[str, Any]) -> None:
        """Updates one weight."""
        gradient = gradient.add(weight, alpha=group["weight_decay"])
        if group["adapt"]:
            size, slope = weight.norm(), gradient.norm()
            local = torch.where((size > 0) & (slope > 0), group["trust"] * size / slope, torch.ones_like(size))
            gradient = gradient * local
        weight.add_(momentum.mul_(group["momentum"]).add_(gradient), alpha=-group["lr"])


class Muon(MomentumOptimizer):
    """Momentum with orthogonalized updates (Jordan et al., 2024).

    With g the gradient of a weight and W its matrix [outputs, all others]; the others of a convolution are inputs, height and
    width::

        m ← μ·m + (1 − μ)·g                 u = (1 − μ)·g + μ·m           (Nesterov)
        W ← (1 − lr·decay)·W − lr · √max(1, rows/columns) · orthogonal(u)

    ``orthogonal`` replaces all singular values by about 1, see `orthogonalized`. Vectors and scalars (scales, shifts, biases)
    have no singular values; their update has the direction of u and root mean square .15·lr, about the same as Adam's in the
    authors' settings. torch.optim.Muon takes matrices only.

    Args:
        params: parameters or groups.
        lr: learning rate, .02 in the authors' code.
        momentum: μ, .95 in the authors' code.
        weight_decay: decoupled.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def update(self, weight: Tensor, gradient: Tensor, momentum: Tensor, group: dict[str, Any]) -> None:
        """Updates one weight."""
        average = momentum.lerp_(gradient, 1 - group["momentum"])
        update = gradient.lerp(average, group["momentum"])
        if weight.ndim > 1:
            matrix = orthogonalized(update.flatten(1))
            scale = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
            update = matrix.view(weight.shape)
        else:
            scale, update = VECTORS, update / update.square().mean().sqrt().clamp_min(TINY)
        weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)


def orthogonalized(matrix: Tensor) -> Tensor:
    """Returns about U·Vᵀ of a matrix U·S·Vᵀ, by five Newton–Schulz steps in float32: singular values from .7 to 1.2.

    A quintic polynomial with the coefficients of Jordan et al. (2024), whose slope at 0 is largest. Directions with singular
    values below 10⁻³ of the Frobenius norm stay smaller.
    """
    wide = matrix.float() if matrix.shape[0] <= matrix.shape[1] else matrix.float().T
    wide = wide / wide.norm().clamp_min(TINY)
    for _ in range(5):
        square = wide @ wide.T
        wide = 3.4445 * wide + (2.0315 * square @ square - 4.7750 * square) @ wide
    return (wide if matrix.shape[0] <= matrix.shape[1] else wide.T).to(matrix.dtype)


def rate(kind: str, step: int, *, total: int, warmup: int, drops: Sequence[float] = ()) -> float:
    """Returns the factor on the peak learning rate: a linear warm-up from 1/warmup to 1, then the schedule ``kind``.

    ``cosine``: half a cosine down to 0; ``step``: ×0.1 at each fraction of the run in ``drops``; ``constant``: 1. As a
    function of the step alone, it cannot be reset by resuming.

    Args:
        kind: one of `coulomb.training.plan.config.SCHEDULES`.
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
