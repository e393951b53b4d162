"""InfoNCE: identify the positive among negatives from the batch or from a queue."""

from torch import Tensor

from coulomb.losses.diagnosis import Diagnosis
from coulomb.losses.negatives import ContrastiveLoss
from coulomb.losses.options import Flag, Tau
from coulomb.losses.temperature import inverse


class InfoNCELoss(ContrastiveLoss):
    """L_i = log(e^{s_i⁺} + Σ_k e^{s_ik}) − s_i⁺ = softplus(LSE_k s_ik − s_i⁺),  s = cos/τ   (van den Oord et al., 2018)

    With ``negatives`` given (a queue or bank: MoCo, He et al., 2020) k runs over them; without, over the positives of
    the other samples in the batch. This is cross-entropy with the positive as the right class, written without the
    cancellation of LSE − s⁺, so that a loss near 0 keeps its digits.

    When to use: pairs of two kinds, as image and text (``symmetric=True``), or queries against a queue of a momentum
    encoder's keys, which gives many negatives at a small batch.
    Needs: one positive a query. No labels. Put the positives into the queue after the loss, not before: they would be
    negatives of their own queries.
    Temperature: negative k is pushed in proportion to its softmax e^{s_ik}, and all together as much as the positive
    pulls. τ → 0 leaves the hardest alone (τL → max(s_max − s⁺, 0) in cosines), τ → ∞ pushes all alike. CLIP learns it.
    Cost: 6u, u = N²·D, in one direction (8u at a τ below .018, or with more than 32,768 keys of D < 128), 8u in
    both; 4u, u = N·K·D, with a queue that has no gradient; memory linear.
    Reference: van den Oord, Li & Vinyals, Representation Learning with Contrastive Predictive Coding, 2018,
    arXiv:1807.03748; He et al., Momentum Contrast for Unsupervised Visual Representation Learning, CVPR 2020,
    arXiv:1911.05722; Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021,
    arXiv:2103.00020.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.07 as in MoCo (v2: 0.2).
        symmetric: average both directions, query→positive and positive→query (in-batch only; CLIP).
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: negatives from all processes' batches: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call the loss. See `coulomb.losses.negatives` for the convention.
            Does not concern ``negatives`` that are given: those are this process's own.

    Call with query [N, D], positive [N, D] and optionally negatives [K, D]; each may or may not carry a gradient. With
    integers ``query_ids`` [N] and ``negative_ids`` [K] (−1: unknown), negatives with the query's own id are left out, such
    as keys of the same image from an epoch before.

    Deviation: none in value. MoCo's code stores the logits [N, 1+K] and subtracts; here neither.
    Degenerate input: without any negative (N = 1 in-batch, K = 0) the loss is 0 and a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> query = positive = torch.eye(4)
    >>> InfoNCELoss(temperature=1.0)(query, positive)  # log(e + 3) − 1
    tensor(0.7437)
    """

    temperature: Tau = 0.07
    symmetric: Flag = False

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None = None,
        *,
        query_ids: Tensor | None = None,
        negative_ids: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        if (query_ids is None) != (negative_ids is None) or (query_ids is not None and negatives is None):
            raise ValueError("query_ids and negative_ids come together, and with negatives: ids of a queue's keys")
        if negatives is not None and self.symmetric:
            raise ValueError(
                "negatives with symmetric=True: the positives have no queue of their own; use symmetric=False"
            )
        ids = query_ids, negative_ids
        contrast = self._pairs(query, positive, negatives, inverse(self.temperature), ids)
        loss = contrast.similarity.contrast(contrast.positives, contrast.over, both=self.symmetric)
        return self._result(contrast, loss)
