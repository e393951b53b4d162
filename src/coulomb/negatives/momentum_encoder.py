"""A momentum encoder: a slowly moving copy of a network, whose keys stay comparable between batches (MoCo, BYOL)."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from coulomb.ground.checked import checked_share


class MomentumEncoder(nn.Module):
    """θ′ ← m·θ′ + (1−m)·θ after each update of the network θ (He et al., 2020).

    The copy's parameters have ``requires_grad=False`` and its forward pass records no graph, so that neither gradients
    nor an optimizer change them. The copy is part of the state dict. The forward pass does not change the state: batch
    norms in training mode use the statistics of the batch without moving the running ones, which follow those of the
    network according to ``buffers``.

    Args:
        module: the network to copy; its structure must not change afterwards.
        momentum: m in [0, 1]. .999 in MoCo on ImageNet, .99 in its CIFAR-10 demo, .996 (cosine) in BYOL. 0 copies.
        schedule: ``"constant"``, or ``"cosine"``: 1 − (1−m)(cos(π·progress)+1)/2, from m to 1 over the run (BYOL).
        buffers: ``"copy"`` copies the network's buffers; ``"average"`` averages floating ones like parameters. MoCo's
            authors do neither (their key encoder computes running statistics from its own batches); in training mode no
            output depends on this choice.

    Raises:
        ValueError, TypeError: an argument is invalid.

    Shape:
        forward(x): as the network that is copied.

    >>> network = torch.nn.Linear(4, 2)
    >>> keys = MomentumEncoder(network, momentum=0.99)
    >>> keys(torch.ones(3, 4)).shape, keys(torch.ones(3, 4)).requires_grad
    (torch.Size([3, 2]), False)
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
                part.track_running_stats = False  # affects training mode only; eval mode uses the buffers regardless

    @torch.no_grad()
    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """Returns the copy's output; buffers that a custom module changes in its forward pass are restored."""
        others = (part for part in self.module.modules() if not isinstance(part, _NormBase))
        saved = [(buffer, buffer.clone()) for part in others for buffer in part.buffers(recurse=False)]
        out: Tensor = self.module(*inputs, **options)
        for buffer, value in saved:
            buffer.copy_(value)
        return out

    def momentum_at(self, progress: float) -> float:
        """Returns m after a fraction ``progress`` (0 … 1) of the run."""
        if self.schedule == "constant":
            return self.momentum
        return 1 - (1 - self.momentum) * (math.cos(math.pi * checked_share("progress", progress)) + 1) / 2

    @torch.no_grad()
    def update(self, online: nn.Module, progress: float = 0.0) -> None:
        """Moves the copy towards ``online``, the network that was copied; call it after each optimizer step."""
        weight = 1 - self.momentum_at(progress)
        for parameter, new in zip(self.module.parameters(), online.parameters(), strict=True):
            parameter.lerp_(new.to(parameter), weight)
        for buffer, current in zip(self.module.buffers(), online.buffers(), strict=True):
            if self.buffer_rule == "average" and buffer.is_floating_point():
                buffer.lerp_(current.to(buffer), weight)
            else:
                buffer.copy_(current)

    def extra_repr(self) -> str:
        """Returns the options, for ``print(encoder)``."""
        return f"momentum={self.momentum:g}, schedule={self.schedule!r}, buffers={self.buffer_rule!r}"
