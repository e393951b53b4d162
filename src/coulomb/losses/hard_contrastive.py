"""Hard contrastive: InfoNCE over only the nearest negatives of each anchor."""

from torch import Tensor
from torch.nn.functional import softplus

from coulomb.losses.diagnosis import Result
from coulomb.losses.negatives import ContrastiveLoss
from coulomb.losses.options import Tau, Whole
from coulomb.losses.temperature import scale_of


class HardContrastiveLoss(ContrastiveLoss):
    """L_i = log(e^{s_i⁺} + Σ_{k ∈ top} e^{s_ik}) − s_i⁺,  s = cos/τ   (the hard contrastive loss of Wang & Liu, 2021)

    InfoNCE over the ``top_k`` nearest negatives of each anchor. A streamed threshold selects them, at the cost of one more
    pass over the similarities.

    When to use: many negatives (a long queue), most of them too easy to give a useful gradient. The selection emphasizes
    hard negatives without a low τ.
    Needs: one positive per query, and more negatives than ``top_k``. No labels. If ``top_k`` is small, the selected
    negatives can be much closer to the query than its positive at the start of training; all embeddings may then collapse
    to one point, where the loss is log(1 + k) (as with the hardest triplets).
    Temperature: as in `InfoNCELoss`, among the top k: as τ → 0 only the hardest negative is pushed, as τ → ∞ all k are
    pushed equally. Selecting by rank takes the place of a low τ.
    Cost: 10u with u = N²·D; 6u with u = N·K·D for a queue without gradient; plus one top-k per row. Memory is linear in N
    and K.
    Reference: Wang & Liu, Understanding the Behavior of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.07 as in `InfoNCELoss`. The paper compares many values.
        top_k: number of negatives that count; 4095 as in the paper. If there are no more than that, all of them count, as
            in InfoNCE.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`); the diagnosis covers all negatives.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention. ``negatives`` are not gathered.

    Shape:
        query, positive: [N, D].
        negatives: [K, D].
        scale: a number or a 0-dim tensor.
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: negatives that tie with the k-th nearest up to rounding also count.
    Degenerate input: without negatives (N = 1 in-batch, or K = 0) the loss is 0, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> queue = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> HardContrastiveLoss(1.0, top_k=1)(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), queue)  # log(e + 1) − 1
    tensor(0.3133)
    """

    temperature: Tau = 0.07
    top_k: Whole = 4095

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None = None,
        *,
        scale: float | Tensor | None = None,
    ) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the anchors.
            positive: positive[i] is the key that query[i] should find.
            negatives: keys that are negatives of every query; None: the positives of the other samples are.
            scale: 1/τ of this call in place of ``temperature``; a tensor gets its gradient.
        """
        contrast = self._pairs(query, positive, negatives, scale_of(self.temperature, scale))
        lse = contrast.similarity.lse(contrast.over, top_k=self.top_k if self.top_k < contrast.count else None)
        return self._result(contrast, softplus(lse - contrast.positives, threshold=50))
