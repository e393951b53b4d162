"""Uniformity: how evenly the embeddings are spread over the sphere."""

import math
from dataclasses import KW_ONLY

import torch.distributed as dist
from torch import Tensor

from coulomb.ground.checked import check_shape
from coulomb.losses.inputs import normalized, reduced, warn_counted
from coulomb.losses.negatives import summed_over
from coulomb.losses.options import Flag, Gather, Loss, Positive, Reduction
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group, gather_rows


class UniformityLoss(Loss):
    """L = log mean_{i≠j} exp(−t‖x_i − x_j‖²)   (Wang & Isola, 2020)

    The energy of points that repel each other: 0 if all are equal, about −3.94 if they are uniform on the sphere in 128
    dimensions (t = 2). For unit rows −t‖x−y‖² = 2t·x·y − 2t, so this is a log-sum-exp of similarities; no matrix of
    distances is stored.

    When to use: to control the spread of the embeddings directly, together with `AlignmentLoss` (the authors add λ times
    the mean over both views), or as a metric to monitor.
    Needs: at least 2 embeddings. No labels, no pairs. Pass one view at a time, because views of one sample would repel each
    other.
    Temperature: t takes its place, τ = 1/(2t). With a large t only the nearest neighbors count; as t → 0 all pairs count
    equally (L → −t·mean ‖x−y‖²).
    Cost: 4u with u = N²·D. Memory is linear in N.
    Reference: Wang & Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere, ICML 2020, arXiv:2005.10242.

    Args:
        t: sharpness of the kernel; 2 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"``, L itself; ``"none"``, L_i = log mean_{j≠i} exp(−t‖x_i − x_j‖²), [N]; ``"sum"``, their sum.
            L is the log of the mean of e^{L_i}, not the mean of L_i.
        gather: use the pairs with samples of all processes. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. L then covers all samples and is equal on
            every process.

    Shape:
        x: [N, D].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: the authors' function expects rows of unit length.
    Degenerate input: N = 1 has no pairs: L = 0, and a `CoulombWarning` is issued. A row of zeros has cosine 0 with all
    others and gets no gradient; a `CoulombWarning` counts such rows.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> UniformityLoss()(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))  # −t·2²
    tensor(-8.)
    """

    t: Positive = 2.0
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"
    gather: Gather = "auto"

    def forward(self, x: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            x: embeddings.
        """
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
            warn_counted(1, 1, "samples have no other sample to be compared with (N = 1): the loss gives no gradient")
        rows = rows - math.log(n - 1) if n > 1 else rows.masked_fill(rows.isinf(), 0)
        if self.reduction == "mean":
            return gather_rows(group, rows).logsumexp(0) - math.log(n)
        return reduced(rows, self.reduction)


def _center(x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """Returns the mean of all samples, equal on every process."""
    return summed_over(group, x.sum(0)) / summed_over(group, x.new_full((), len(x)))
