"""Simple and hard simple: the similarities themselves, without temperature or softmax."""

from torch import Tensor

from coulomb.losses.diagnosis import Diagnosis
from coulomb.losses.negatives import Contrast, ContrastiveLoss
from coulomb.losses.options import NonNegative, Whole


class SimpleContrastiveLoss(ContrastiveLoss):
    """L_i = −s_i⁺ + λ Σ_k s_ik,  s = cos   (the simple loss of Wang & Liu, 2021)

    Every negative is pushed equally hard, whatever its similarity: the limit of a high temperature. The sum over k is one
    product with the sum of all keys, O(N·D); no matrix is formed.

    When to use: as a baseline, to see what attention to hard negatives is worth; or where even one pass over the
    similarities is too slow.
    Needs: one positive a query, and negatives. No labels. λ should fall with their number.
    Temperature: none; λ weighs the push against the pull, and no negative counts more than another.
    Cost: O((N+K)·D).
    Reference: Wang & Liu, Understanding the Behaviour of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        weight: λ; 1 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`), at the cost of the N×K similarities, with softmax weights e^cos.
        gather: negatives from all processes' batches: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call the loss. See `coulomb.losses.negatives` for the convention.
            Does not concern ``negatives`` that are given: those are this process's own.

    Call with query [N, D], positive [N, D] and optionally negatives [K, D]; without, the negatives of a query are the
    positives of the other samples.

    Deviation: none known. The sum over k grows with the number of negatives: λ = 1/K makes it a mean.
    Degenerate input: without any negative (N = 1 in-batch, K = 0) the loss is −s⁺, and a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> SimpleContrastiveLoss()(torch.eye(4), torch.eye(4), torch.ones(2, 4))  # −1 + 2 cos 60°
    tensor(0.)
    """

    weight: NonNegative = 1.0

    def forward(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        contrast = self._pairs(query, positive, negatives, 1.0)
        return self._result(contrast, self.weight * self._sum(contrast) - contrast.positives)

    def _sum(self, contrast: Contrast) -> Tensor:
        """Σ_k s_ik, [N]."""
        return contrast.similarity.sum(contrast.over)


class HardSimpleLoss(SimpleContrastiveLoss):
    """L_i = −s_i⁺ + λ Σ_{k ∈ top} s_ik,  s = cos   (the hard simple loss of Wang & Liu, 2021)

    The simple loss on each anchor's ``top_k`` nearest negatives alone; they are found by a streamed threshold.

    When to use: attention to hard negatives without a temperature to choose.
    Needs: one positive a query, and more negatives than ``top_k``. No labels. λ should fall with ``top_k``,
    and ``top_k`` be no smaller than training gets going with; see `HardContrastiveLoss`.
    Temperature: none; ``top_k`` takes its place (a few: the hardest alone; all: the simple loss), and λ weighs the
    push.
    Cost: 10u, u = N²·D, or 8u, u = N·K·D, with a queue that has no gradient; and a top-k a row; memory linear.
    Reference: Wang & Liu, Understanding the Behaviour of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        weight: λ; 1 as in the paper.
        top_k: how many negatives count; 4095 as in the paper. As many as there are, if there are fewer.
        normalize, reduction, diagnose, gather: as in `SimpleContrastiveLoss`; the diagnosis is of all negatives.

    Call with query [N, D], positive [N, D] and optionally negatives [K, D]; without, the negatives of a query are the
    positives of the other samples.

    Deviation: negatives that equal the last of the top k to rounding count too.
    Degenerate input and Raises: as for `SimpleContrastiveLoss`.

    >>> HardSimpleLoss(top_k=1)(torch.eye(2), torch.eye(2), torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # −1 + cos 45°
    tensor(-0.2929)
    """

    top_k: Whole = 4095

    def _sum(self, contrast: Contrast) -> Tensor:
        """Σ_{k ∈ top} s_ik, [N]."""
        top_k = self.top_k if self.top_k < contrast.count else None
        return contrast.similarity.sum(contrast.over, top_k=top_k)
