"""Hard contrastive: InfoNCE against the nearest negatives of each anchor only."""

from torch import Tensor
from torch.nn.functional import softplus

from coulomb.losses.diagnosis import Diagnosis
from coulomb.losses.negatives import ContrastiveLoss
from coulomb.losses.options import Tau, Whole
from coulomb.losses.temperature import inverse


class HardContrastiveLoss(ContrastiveLoss):
    """L_i = log(e^{s_i⁺} + Σ_{k ∈ top} e^{s_ik}) − s_i⁺,  s = cos/τ   (the hard contrastive loss of Wang & Liu, 2021)

    InfoNCE whose sum keeps an anchor's ``top_k`` nearest negatives; they are found by a streamed threshold, one more pass.

    When to use: many negatives (a long queue), most of them too easy to teach anything, and a τ that need not be low
    for it.
    Needs: one positive a query, and more negatives than ``top_k``. No labels. Not too small a ``top_k``: the nearer the
    top k lie than the positive at the start of a training, the likelier all embeddings shrink to a point, where the loss
    is log(1 + k) (as with the hardest triplets).
    Temperature: as in `InfoNCELoss`, within the top k: τ → 0 the hardest alone, τ → ∞ the top k alike. The choice by
    rank stands in for a low τ.
    Cost: 10u, u = N²·D, or 6u, u = N·K·D, with a queue that has no gradient; and a top-k a row; memory linear.
    Reference: Wang & Liu, Understanding the Behaviour of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.07 as for `InfoNCELoss`; the paper compares many.
        top_k: how many negatives count; 4095 as in the paper. As many as there are, if there are fewer: InfoNCE.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`) of all negatives.
        gather: negatives from all processes' batches: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call the loss. See `coulomb.losses.negatives` for the convention.
            Does not concern ``negatives`` that are given: those are this process's own.

    Call with query [N, D], positive [N, D] and optionally negatives [K, D]; without, the negatives of a query are the
    positives of the other samples.

    Deviation: negatives that equal the last of the top k to rounding count too.
    Degenerate input: without any negative (N = 1 in-batch, K = 0) the loss is 0, and a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> queue = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> HardContrastiveLoss(1.0, top_k=1)(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), queue)  # log(e + 1) − 1
    tensor(0.3133)
    """

    temperature: Tau = 0.07
    top_k: Whole = 4095

    def forward(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        contrast = self._pairs(query, positive, negatives, inverse(self.temperature))
        top_k = self.top_k if self.top_k < contrast.count else None
        lse = contrast.similarity.lse(contrast.over, top_k=top_k)
        return self._result(contrast, softplus(lse - contrast.positives, threshold=50))
