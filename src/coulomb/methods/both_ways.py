"""Losses of (query, positive) pairs on two views, each view against the other: what SimCLR may take instead of NT-Xent."""

import math
from typing import Any

from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.losses import HardContrastiveLoss, HardSimpleLoss, SimpleContrastiveLoss
from coulomb.losses.negatives import world_size
from coulomb.similarity.collectives import gather_group

PAIR_LOSSES = ("hard", "simple", "hard_simple")


class BothWays(nn.Module):
    """½(L(z₀, z₁) + L(z₁, z₀)): an image's negatives are the other images' other views, K = N − 1 of them.

    Args:
        loss: ``"hard"`` (InfoNCE on the ``top_k`` nearest negatives), ``"simple"`` (−s⁺ + mean over the negatives of s: λ =
            1/K, the limit of InfoNCE at a high temperature) or ``"hard_simple"`` (λ = 1/top_k, over the ``top_k`` nearest).
        temperature: τ of the hard loss; the simple ones have none.
        top_k: how many negatives count in the hard losses; None: half of them, ⌈K/2⌉.
    """

    def __init__(self, loss: str, temperature: float, top_k: int | None):
        super().__init__()
        if loss not in PAIR_LOSSES:
            raise InputError(f"loss={loss!r}: must be contrastive, {', '.join(PAIR_LOSSES)}")
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k={top_k}: must be at least 1")
        self.kind, self.top_k = loss, top_k
        self.loss: Any
        if loss == "hard":
            self.loss = HardContrastiveLoss(temperature)
        else:
            self.loss = SimpleContrastiveLoss() if loss == "simple" else HardSimpleLoss()

    def forward(self, embeddings: Tensor) -> Tensor:
        """Loss of embeddings [N, 2, D]; a scalar."""
        if embeddings.shape[1] != 2:
            raise InputError(f"n_views={embeddings.shape[1]}: loss={self.kind!r} is of pairs, use 2")
        first, second = embeddings.unbind(1)
        counted = self.counted(len(first) * world_size(gather_group("auto")))
        if self.kind != "hard":
            self.loss.weight = 1 / counted
        if self.kind != "simple":
            self.loss.top_k = counted
        loss: Tensor = (self.loss(first, second) + self.loss(second, first)) / 2
        return loss

    def counted(self, batch: int) -> int:
        """How many negatives count in a batch of all processes."""
        negatives = max(batch - 1, 1)
        if self.kind == "simple":
            return negatives
        return (negatives + 1) // 2 if self.top_k is None else min(self.top_k, negatives)

    def no_signal(self, batch: int) -> float:
        """The loss when all embeddings are alike: ln(1 + negatives that count) of the hard loss, 0 of the simple ones."""
        return math.log1p(self.counted(batch)) if self.kind == "hard" else 0.0
