"""SimCLR: two views of an image attract each other, all other views in the batch repel."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.losses import HardContrastiveLoss, HardSimpleLoss, NTXentLoss, SimpleContrastiveLoss
from coulomb.losses.negatives import summed_over
from coulomb.methods.interface import OneColumn, Traits, equal_embeddings_loss
from coulomb.metrics.loss_floor import infonce_at
from coulomb.models import Tower, ViewRows
from coulomb.similarity.collectives import gather_group

PAIR_LOSSES = ("hard", "simple", "hard_simple")


class SimCLR(OneColumn):
    """One encoder, one projection head, NT-Xent over the batch (Chen et al., 2020).

        z = head(encoder(view))         all views in one forward pass, which share the batch statistics
        loss = NT-Xent(z)               mean over all V·N views as anchors

    Labels are not used. The head is discarded after training.

    Args:
        tower: encoder and head; the head has 2 layers and ends in 128, as in the paper (the authors' version 2: 3 layers).
        temperature: τ of NT-Xent; .5 for CIFAR, .1 for ImageNet in the paper.
        loss: ``"contrastive"`` is NT-Xent. ``"hard"``, ``"simple"`` and ``"hard_simple"`` are the losses of Wang & Liu
            (2021) on two views, see `SymmetricPairLoss`.
        top_k: number of negatives in the hard losses; None is half of those in the batch. The paper's share, 4095 of
            50,000, would be a twelfth, which collapses on digits; see `HardContrastiveLoss`.
    """

    traits = Traits(negatives=True)
    local_mean = False

    def __init__(
        self,
        tower: Tower,
        *,
        temperature: float = 0.5,
        loss: str = "contrastive",
        top_k: int | None = None,
    ):
        super().__init__(tower)
        self.temperature = temperature
        if loss == "contrastive":
            self.criterion = NTXentLoss(temperature=temperature)
        else:
            self.criterion, self.most_views = SymmetricPairLoss(loss, temperature, top_k), 2

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar."""
        embeddings = self.embed(views)
        pair = len(embeddings) == 2 * views.instances
        loss: Tensor = self.criterion(*views.split(embeddings) if pair else [views.by_instance(embeddings)])
        return loss

    def no_signal(self, batch: int, views: int) -> float:
        """Returns the loss when all embeddings are equal, ln(V·N − 1) for NT-Xent."""
        if isinstance(self.criterion, SymmetricPairLoss):
            return self.criterion.no_signal(batch)
        return equal_embeddings_loss(batch, views)

    def floor(self, batch: int, views: int) -> float | None:
        """Returns the smallest loss of NT-Xent on two views, ln(1 + (2N − 2)·exp(−(1 + 1/(N − 1))/τ)); else None.

        It is reached when the views of an image coincide and the N images form a regular simplex, cos = −1/(N − 1); this
        follows from the convexity of log Σ exp and Σᵢⱼ zᵢ·zⱼ ≥ 0.
        """
        if isinstance(self.criterion, SymmetricPairLoss) or views != 2 or batch < 2:
            return None
        return infonce_at(2 * batch - 2, self.temperature, -1 / (batch - 1))


class SymmetricPairLoss(nn.Module):
    """½(L(z₀, z₁) + L(z₁, z₀)), where the K = N − 1 negatives of an image are the other images' opposite views.

    Args:
        loss: ``"hard"`` (InfoNCE on the ``top_k`` nearest negatives), ``"simple"`` (−s⁺ + mean of s over the negatives: λ =
            1/K, the limit of InfoNCE at a high temperature) or ``"hard_simple"`` (λ = 1/top_k, over the ``top_k`` nearest).
        temperature: τ of the hard loss; the simple losses have none.
        top_k: number of negatives in the hard losses; None is half of them, ⌈K/2⌉.
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

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor:
        """Returns the loss of embeddings [N, D] of two views, a scalar."""
        images = summed_over(gather_group("auto"), torch.tensor(len(view0), device=view0.device))
        negatives = self.count_negatives(int(images))
        if self.kind != "hard":
            self.loss.weight = 1 / negatives
        if self.kind != "simple":
            self.loss.top_k = negatives
        loss: Tensor = (self.loss(view0, view1) + self.loss(view1, view0)) / 2
        return loss

    def count_negatives(self, batch: int) -> int:
        """Returns how many negatives of an anchor enter the loss, for ``batch`` images in all processes."""
        negatives = max(batch - 1, 1)
        if self.kind == "simple":
            return negatives
        return (negatives + 1) // 2 if self.top_k is None else min(self.top_k, negatives)

    def no_signal(self, batch: int) -> float:
        """Returns the loss when all embeddings are equal: ln(1 + negatives) for the hard loss, 0 for the simple ones."""
        return math.log1p(self.count_negatives(batch)) if self.kind == "hard" else 0.0
