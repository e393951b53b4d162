"""InfoNCE: identify the positive among negatives from the batch or from a queue."""

from torch import Tensor

from coulomb.losses.diagnosis import Result
from coulomb.losses.negatives import ContrastiveLoss
from coulomb.losses.options import Flag, Tau
from coulomb.losses.temperature import scale_of


class InfoNCELoss(ContrastiveLoss):
    """L_i = log(e^{s_i⁺} + Σ_k e^{s_ik}) − s_i⁺ = softplus(LSE_k s_ik − s_i⁺),  s = cos/τ   (van den Oord et al., 2018)

    k runs over ``negatives`` (a queue or memory bank: MoCo, He et al., 2020) if they are given, otherwise over the positives
    of the other samples in the batch. This is cross-entropy with the positive as the target class, computed without the
    cancellation in LSE − s⁺, so that a loss near 0 keeps its precision.

    When to use: pairs from two modalities, such as image and text (``symmetric=True``), or queries against a queue of keys
    from a momentum encoder, which provides many negatives with a small batch.
    Needs: one positive per query. No labels. Add the positives to the queue after computing the loss; otherwise they are
    negatives of their own queries.
    Temperature: negative k is pushed in proportion to its softmax e^{s_ik}, and all negatives together are pushed as much
    as the positive is pulled. As τ → 0 only the hardest negative is pushed (τL → max(s_max − s⁺, 0) in cosines), as τ → ∞
    all are pushed equally. CLIP learns τ.
    Cost: 6u with u = N²·D in one direction (8u if τ < 0.018, or with more than 32,768 keys of D < 128), 8u in both; 4u with
    u = N·K·D for a queue without gradient. Memory is linear in N and K.
    Reference: van den Oord, Li & Vinyals, Representation Learning with Contrastive Predictive Coding, 2018,
    arXiv:1807.03748; He et al., Momentum Contrast for Unsupervised Visual Representation Learning, CVPR 2020,
    arXiv:1911.05722; Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021,
    arXiv:2103.00020.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.07 as in MoCo (v2: 0.2).
        symmetric: average the losses of both directions, query→positive and positive→query (CLIP; in-batch only).
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention. ``negatives`` are not gathered.

    Shape:
        query, positive: [N, D].
        negatives: [K, D].
        query_ids: [N].
        negative_ids: [K].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none in value. MoCo's code stores the logits [N, 1+K] and subtracts; this implementation does neither.
    Degenerate input: without negatives (N = 1 in-batch, or K = 0) the loss is 0, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

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
    ) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the anchors.
            positive: positive[i] is the key that query[i] should find.
            negatives: keys that are negatives of every query, with or without gradient; None: the positives of the other
                samples are.
            query_ids: integers, −1 for unknown, given together with ``negative_ids``.
            negative_ids: negatives with the id of a query are left out for it, such as keys of the same image from an
                earlier epoch.
        """
        if (query_ids is None) != (negative_ids is None) or (query_ids is not None and negatives is None):
            raise ValueError("query_ids and negative_ids must be given together, and only with negatives")
        if negatives is not None and self.symmetric:
            raise ValueError("negatives with symmetric=True: they apply to the queries only; use symmetric=False")
        ids = query_ids, negative_ids
        contrast = self._pairs(query, positive, negatives, scale_of(self.temperature), ids)
        loss = contrast.similarity.contrast(contrast.positives, contrast.over, both=self.symmetric)
        return self._result(contrast, loss)
