"""InfoNCE: pick the positive among negatives from the batch or from a queue."""

from functools import partial
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import softplus

from coulomb.checked import checked_flag
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    embeddings,
    paired_embeddings,
    warn_counted,
)
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.gathering import reduced_in
from coulomb.losses.options import Loss
from coulomb.losses.pairs_at_once import PairsAtOnce
from coulomb.losses.sources import fit_at_once
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather, group_of


class InfoNCELoss(Loss):
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
            several processes, which must then all call the loss. See `coulomb.losses.gathering` for the convention.
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

    checks: ClassVar = {"temperature": checked_temperature, "symmetric": checked_flag}

    def __init__(
        self,
        temperature: Temperature = 0.07,
        symmetric: bool = False,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.symmetric = symmetric
        self.normalize = normalize
        self.reduction = reduction
        self.diagnose = diagnose
        self.gather = gather

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
        scale, plainly = scale_of(self.temperature), not self.diagnose and query_ids is None
        pairs = query, positive, negatives
        if fit_at_once(*pairs, gather=self.gather, reduction=self.reduction, plainly=plainly):
            return at_once.known(partial(self._at_once, *pairs, scale), self._streamed, *pairs, scale)
        return self._streamed(*pairs, scale, query_ids, negative_ids)

    def _at_once(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None, scale: float | Tensor, learning: bool
    ) -> at_once.Found:
        pairs = PairsAtOnce(query, positive, negatives, scale, normalize=self.normalize)
        factor = at_once.factor_of(self.reduction, len(query))
        turned = (
            pairs.t.T.contiguous() if self.symmetric and not pairs.within else None
        )  # columns have their own maximum
        total, lse = at_once.softmax_(pairs.t, within=pairs.within)
        loss, pull = at_once.pulled(lse, pairs.own, self.reduction)
        weight, extra = (pull / total)[:, None], None
        if self.symmetric:
            if turned is None:
                total = pairs.t.sum(0)
                lse = total.log()
            else:
                total, lse = at_once.softmax_(turned, within=False)
            back_loss, back = at_once.pulled(lse, pairs.own, self.reduction)
            loss, pull, factor = (loss + back_loss).div_(2), pull + back, factor / 2
            if turned is None:
                weight = weight + back / total
            else:
                extra = turned.mul_((back / total)[:, None]).T
        if not learning:
            return loss, ()
        gradient = pairs.t.mul_(weight)
        return loss, pairs.back(gradient if extra is None else gradient.add_(extra), pull, factor)

    def _streamed(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None,
        scale: float | Tensor,
        query_ids: Tensor | None = None,
        negative_ids: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        both = paired_embeddings(("query", "positive"), query, positive, normalize=self.normalize)
        n, dtype = len(query), query.dtype
        query, positive = both.view(2, n, -1).unbind()
        group = group_of(self.gather) if negatives is None else None
        in_batch = Similarity(query, positive, scale=scale, instances=n, unit=self.normalize, half=dtype, group=group)
        anchors = in_batch.number_of_keys
        count = anchors - 1 if negatives is None else len(negatives)
        if count == 0:
            warn_counted(n, n, "anchors have no negative: their loss is 0 and teaches nothing")
        if negatives is None:
            scores, over, lse = in_batch, "negatives", None
            loss = in_batch.contrast(both=self.symmetric)
        else:
            keys = embeddings("negatives", negatives, normalize=self.normalize, like=query)
            scores = Similarity(
                query,
                keys,
                scale=scale,
                query_ids=query_ids,
                key_ids=negative_ids,
                unit=self.normalize,
                half=dtype,
            )
            over = "all" if query_ids is None else "negatives"
            lse = scores.lse(over) if self.diagnose else None
            own = in_batch.positives()
            loss = scores.against(own, over) if lse is None else softplus(lse - own, threshold=50)
        loss = reduced_in(group, loss, self.reduction, anchors)
        if not self.diagnose:
            return loss
        return loss, diagnose_rows(scores, over, lse=lse, positive=in_batch.positives())

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"{describe_temperature(self.temperature)}, symmetric={self.symmetric}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}, diagnose={self.diagnose}, gather={self.gather!r}"
        )
