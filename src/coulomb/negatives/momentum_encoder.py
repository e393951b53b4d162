"""A slowly moving copy of a network: keys that stay comparable from batch to batch (MoCo, BYOL)."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from coulomb.checked import checked_share
from coulomb.negatives.rows import cosine_to_one


class MomentumEncoder(nn.Module):
    """θ′ ← m·θ′ + (1−m)·θ after each update of the network θ: a frozen copy that follows it (He et al., 2020).

    The copy's parameters have ``requires_grad=False`` and its forward runs without a graph: no gradient reaches it, and
    no optimiser does. It is part of the state dict. A forward leaves its state alone: batch norms in training mode take
    the statistics of the batch, and do not move their running ones; these follow the network's by ``buffers``.

    Args:
        module: the network to copy; its structure must stay what it is.
        momentum: m in [0, 1]. .999 in MoCo on ImageNet, .99 in its CIFAR-10 demo, .996 (cosine) in BYOL. 0 copies.
        schedule: ``"constant"``, or ``"cosine"``: 1 − (1−m)(cos(π·progress)+1)/2, from m to 1 over the run (BYOL).
        buffers: ``"copy"``: the network's buffers as they are now; ``"average"``: floating ones move like parameters.
            MoCo's authors do neither (their key encoder's running statistics are of its own batches); in training mode
            no output depends on this choice.

    Raises:
        ValueError, TypeError: naming the argument.
    """

    def __init__(
        self, module: nn.Module, momentum: float = 0.99, *, schedule: str = "constant", buffers: str = "copy"
    ) -> None:
        super().__init__()
        self.momentum = checked_share("momentum", momentum)
        if schedule not in ("constant", "cosine"):
            raise ValueError(f"schedule must be 'constant' or 'cosine', got {schedule!r}")
        if buffers not in ("copy", "average"):
            raise ValueError(f"buffers must be 'copy' or 'average', got {buffers!r}")
        self.schedule, self.buffer_rule = schedule, buffers
        self.module = copy.deepcopy(module).requires_grad_(False)
        for part in self.module.modules():
            if isinstance(part, _NormBase):
                part.track_running_stats = False  # in training mode; in eval mode the buffers are used all the same

    @torch.no_grad()
    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """What the copy says; buffers that a module of the user's moves in its forward are put back."""
        norms = (part for part in self.module.modules() if not isinstance(part, _NormBase))
        before = [(buffer, buffer.clone()) for part in norms for buffer in part.buffers(recurse=False)]
        out: Tensor = self.module(*inputs, **options)
        for buffer, was in before:
            buffer.copy_(was)
        return out

    def momentum_at(self, progress: float) -> float:
        """m when a share ``progress`` (0 … 1) of the run is done."""
        if self.schedule == "constant":
            return self.momentum
        return cosine_to_one(self.momentum, checked_share("progress", progress))

    @torch.no_grad()
    def update(self, online: nn.Module, progress: float = 0.0) -> None:
        """One step towards ``online``, the network that was copied; after each step of the optimiser."""
        towards = 1 - self.momentum_at(progress)
        for weight, new in zip(self.module.parameters(), online.parameters(), strict=True):
            weight.lerp_(new.to(weight), towards)
        for buffer, now in zip(self.module.buffers(), online.buffers(), strict=True):
            if self.buffer_rule == "average" and buffer.is_floating_point():
                buffer.lerp_(now.to(buffer), towards)
            else:
                buffer.copy_(now)

    def extra_repr(self) -> str:
        """The options, for ``print(encoder)``."""
        return f"momentum={self.momentum:g}, schedule={self.schedule!r}, buffers={self.buffer_rule!r}"
