"""Uniformity: how evenly the samples are spread over the sphere."""

import math
from dataclasses import KW_ONLY

import torch.distributed as dist
from torch import Tensor

from coulomb.losses.inputs import check_shape, normalized, reduced, warn_counted
from coulomb.losses.negatives import summed_over
from coulomb.losses.options import Flag, Gather, Loss, Positive, Reduction
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group, gather_rows


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

    t: Positive = 2.0
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"
    gather: Gather = "auto"

    def forward(self, x: Tensor) -> Tensor:
        """The loss; see the class."""
        check_shape("x", x)
        x, group = normalized(("x",), x, normalize=self.normalize), gather_group(self.gather)
        shift: float | Tensor
        if self.normalize:  # −t‖x − y‖² = 2t·x·y − 2t
            similarity, shift = Similarity(x, scale=2 * self.t, unit=True, group=group), -2 * self.t
        else:
            x = x - _center(x, group)  # keeps the distances, with less cancellation
            shift = bias = -self.t * x.square().sum(1)
            similarity = Similarity(x, scale=2 * self.t, column_bias=bias, group=group)
        rows, n = similarity.lse("others") + shift, similarity.number_of_keys
        if n == 1:
            warn_counted(1, 1, "samples has no other (N = 1): the loss is 0 and gives no gradient")
        rows = rows - math.log(n - 1) if n > 1 else rows.masked_fill(rows.isinf(), 0)
        if self.reduction == "mean":
            return gather_rows(group, rows).logsumexp(0) - math.log(n)
        return reduced(rows, self.reduction)


def _center(x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The mean of all samples, the same on every process."""
    if group is None:
        return x.detach().mean(0)
    return summed_over(group, x.sum(0)) / summed_over(group, x.new_full((), len(x)))
