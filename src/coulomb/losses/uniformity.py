"""Uniformity: how evenly the samples are spread."""

import math
from functools import partial
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.checked import checked_number
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_shape,
    embeddings,
    reduced,
    require_batch,
    warn_counted,
)
from coulomb.losses.gathering import summed_in
from coulomb.losses.options import Loss
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather, group_of, rows_in
from coulomb.similarity.products import product


class UniformityLoss(Loss):
    """L = log mean_{i≠j} exp(−t‖x_i − x_j‖²)   (Wang & Isola, 2020)

    The energy of points that repel each other: from 0 (all in one place) to about −3.94 (uniform on the sphere in 128
    dimensions, t = 2). −t‖x−y‖² = 2t·x·y − 2t for unit rows, so that this is a log-sum-exp of similarities; no matrix of
    distances is stored.

    When to use: to control the spread directly, beside `AlignmentLoss` (the authors add λ times the mean over both
    views), or as a number to watch.
    Needs: at least 2 embeddings. No labels, no pairs; views of one sample would repel each other, so give one view at a
    time.
    Temperature: t takes its place, τ = 1/(2t). A large t sees the nearest neighbours alone; t → 0 all pairs alike (L →
    −t·mean ‖x−y‖²).
    Cost: 4u, u = N²·D; memory linear.
    Reference: Wang & Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere, ICML 2020, arXiv:2005.10242.

    Args:
        t: sharpness of the kernel; 2 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"``, L itself; ``"none"``, L_i = log mean_{j≠i} exp(−t‖x_i − x_j‖²), [N]; ``"sum"``, their sum.
            L is the log of the mean of e^{L_i}, not the mean of L_i.
        gather: pairs with the samples of all processes: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call the loss. L is then that of all samples,
            on every process.

    Call with x [N, D].

    Deviation: the authors leave the scaling to unit length to the caller.
    Degenerate input: N = 1 has no pair: L = 0, and a `CoulombWarning` says so. A row of zeros has cosine 0 with all
    others, gets no gradient, and is counted in a `CoulombWarning`.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> UniformityLoss()(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))  # −t·2²
    tensor(-8.)
    """

    checks: ClassVar = {"t": partial(checked_number, above=0)}

    def __init__(
        self, t: float = 2.0, *, normalize: bool = True, reduction: str = "mean", gather: Gather = "auto"
    ) -> None:
        super().__init__()
        self.t = t
        self.normalize = normalize
        self.reduction = reduction
        self.gather = gather

    def forward(self, x: Tensor) -> Tensor:
        """The loss; see the class."""
        check_shape("x", x)
        require_batch("x", x)
        plainly = self.normalize and len(x) > 1 and self.reduction == "mean" and group_of(self.gather) is None
        if at_once.fits(len(x), len(x), x, plainly=plainly) and at_once.within(x.dtype, 2 * self.t):
            return at_once.known(partial(self._at_once, x), self._streamed, x)
        return self._streamed(x)

    def _at_once(self, x: Tensor, learning: bool) -> at_once.Found:
        rows = at_once.Rows(("x",), (x,), normalize=True)
        # −t‖x−y‖² = 2t(x·y − 1)
        exponential = at_once.exponents(rows.unit, rows.unit, 2 * self.t).exp2_()
        exponential.fill_diagonal_(0)
        total = exponential.sum()
        loss = total.log() - (2 * self.t + math.log(len(x) * (len(x) - 1)))
        if not learning:
            return loss, ()
        grad = product(exponential, rows.unit.T).div_(total)
        return loss, rows.back(grad, 4 * self.t)

    def _streamed(self, x: Tensor) -> Tensor:
        x = embeddings("x", x, normalize=self.normalize)
        group = group_of(self.gather)
        shift: float | Tensor
        if self.normalize:
            similarity, shift = Similarity(x, scale=2 * self.t, unit=True, group=group), -2 * self.t
        else:
            x = x - _center(x, group)  # distances stay, and cancel less
            shift = bias = -self.t * x.square().sum(1)
            similarity = Similarity(x, scale=2 * self.t, column_bias=bias, group=group)
        rows, n = similarity.lse("others") + shift, similarity.number_of_keys
        if n == 1:
            warn_counted(1, 1, "samples has no other (N = 1): the loss is 0 and teaches nothing")
        rows = rows - math.log(n - 1) if n > 1 else rows.masked_fill(rows == -torch.inf, 0)
        if self.reduction == "mean":
            return rows_in(group, rows).logsumexp(0) - math.log(n)
        return reduced(rows, self.reduction)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return f"t={self.t:g}, normalize={self.normalize}, reduction={self.reduction!r}, gather={self.gather!r}"


def _center(x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The mean of all samples, the same on every process."""
    if group is None:
        return x.detach().mean(0)
    return summed_in(group, x.sum(0)) / summed_in(group, x.new_full((), len(x)))
