"""Simple and hard simple: linear in the similarities, without temperature or softmax."""

from torch import Tensor

from coulomb.losses.diagnosis import Result
from coulomb.losses.negatives import Contrast, ContrastiveLoss
from coulomb.losses.options import NonNegative, Whole


class SimpleContrastiveLoss(ContrastiveLoss):
    """L_i = −s_i⁺ + λ Σ_k s_ik,  s = cos   (the simple loss of Wang & Liu, 2021)

    Every negative is pushed with equal force, whatever its similarity: the limit of a high temperature. The sum over k is
    one product with the sum of all keys, O(N·D); no matrix of similarities is computed.

    When to use: as a baseline without emphasis on hard negatives, or where even one pass over the similarities is too slow.
    Needs: one positive per query, and negatives. No labels. λ should be smaller for more negatives.
    Temperature: none. λ weights the push of the negatives against the pull of the positive; all negatives count equally.
    Cost: O((N+K)·D).
    Reference: Wang & Liu, Understanding the Behavior of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        weight: λ; 1 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`), with softmax weights e^cos. This computes the N×K similarities.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention. ``negatives`` are not gathered.

    Shape:
        query, positive: [N, D].
        negatives: [K, D].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none known. The sum over k grows with the number of negatives; λ = 1/K makes it a mean.
    Degenerate input: without negatives (N = 1 in-batch, or K = 0) the loss is −s⁺, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> SimpleContrastiveLoss()(torch.eye(4), torch.eye(4), torch.ones(2, 4))  # −1 + 2 cos 60°
    tensor(0.)
    """

    weight: NonNegative = 1.0

    def forward(self, query: Tensor, positive: Tensor, negatives: Tensor | None = None) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the anchors.
            positive: positive[i] is the key that query[i] should find.
            negatives: keys that are negatives of every query; None: the positives of the other samples are.
        """
        contrast = self._pairs(query, positive, negatives, 1.0)
        return self._result(contrast, self.weight * self._sum(contrast) - contrast.positives)

    def _sum(self, contrast: Contrast) -> Tensor:
        """Returns Σ_k s_ik, [N]."""
        return contrast.similarity.sum(contrast.over)


class HardSimpleLoss(SimpleContrastiveLoss):
    """L_i = −s_i⁺ + λ Σ_{k ∈ top} s_ik,  s = cos   (the hard simple loss of Wang & Liu, 2021)

    The simple loss over the ``top_k`` nearest negatives of each anchor, selected by a streamed threshold.

    When to use: emphasis on hard negatives without a temperature to tune.
    Needs: one positive per query, and more negatives than ``top_k``. No labels. λ should be smaller for a larger ``top_k``.
    A small ``top_k`` may prevent training from starting; see `HardContrastiveLoss`.
    Temperature: none. ``top_k`` takes its place (small: only the hardest negatives; all: the simple loss), and λ weights
    the push.
    Cost: 10u with u = N²·D; 8u with u = N·K·D for a queue without gradient; plus one top-k per row. Memory is linear in N
    and K.
    Reference: Wang & Liu, Understanding the Behavior of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        weight: λ; 1 as in the paper.
        top_k: number of negatives that count; 4095 as in the paper. If there are no more than that, all of them count.
        normalize, reduction, diagnose, gather: as in `SimpleContrastiveLoss`; the diagnosis covers all negatives.

    Shape:
        query, positive: [N, D].
        negatives: [K, D].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: negatives that tie with the k-th nearest up to rounding also count.
    Degenerate input and Raises: as for `SimpleContrastiveLoss`.

    >>> HardSimpleLoss(top_k=1)(torch.eye(2), torch.eye(2), torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # −1 + cos 45°
    tensor(-0.2929)
    """

    top_k: Whole = 4095

    def _sum(self, contrast: Contrast) -> Tensor:
        """Returns Σ_{k ∈ top} s_ik, [N]."""
        return contrast.similarity.sum(contrast.over, top_k=self.top_k if self.top_k < contrast.count else None)
