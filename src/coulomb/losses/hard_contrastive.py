"""Hard contrastive: InfoNCE against each anchor's nearest negatives alone."""

from functools import partial
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import softplus

from coulomb.checked import checked_whole
from coulomb.losses import at_once
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.options import Loss
from coulomb.losses.pairs_at_once import PairsAtOnce
from coulomb.losses.sources import fit_at_once, negatives_of
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.similarity.collectives import Gather


class HardContrastiveLoss(Loss):
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
            several processes, which must then all call the loss. See `coulomb.losses.gathering` for the convention.
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

    checks: ClassVar = {"temperature": checked_temperature, "top_k": checked_whole}

    def __init__(
        self,
        temperature: Temperature = 0.07,
        top_k: int = 4095,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.top_k = top_k
        self.normalize = normalize
        self.reduction = reduction
        self.gather = gather
        self.diagnose = diagnose

    def forward(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        scale, pairs = scale_of(self.temperature), (query, positive, negatives)
        if fit_at_once(*pairs, gather=self.gather, reduction=self.reduction, plainly=not self.diagnose):
            return at_once.known(partial(self._at_once, *pairs, scale), self._streamed, *pairs, scale)
        return self._streamed(*pairs, scale)

    def _at_once(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None, scale: float | Tensor, learning: bool
    ) -> at_once.Found:
        pairs = PairsAtOnce(query, positive, negatives, scale, normalize=self.normalize)
        total, lse = at_once.softmax_(pairs.t, within=pairs.within, counts_NM=pairs.top(self.top_k))
        loss, pull = at_once.pulled(lse, pairs.own, self.reduction)
        if not learning:
            return loss, ()
        gradient = pairs.t.mul_((pull / total)[:, None])
        return loss, pairs.back(gradient, pull, at_once.factor_of(self.reduction, len(query)))

    def _streamed(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None, scale: float | Tensor
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        against = negatives_of(query, positive, negatives, scale=scale, normalize=self.normalize, gather=self.gather)
        lse = against.similarity.lse(against.over, top_k=against.fewer(self.top_k))
        loss = against.reduced(softplus(lse - against.positives, threshold=50), self.reduction)
        if not self.diagnose:
            return loss
        return loss, diagnose_rows(against.similarity, against.over, positive=against.positives)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"{describe_temperature(self.temperature)}, top_k={self.top_k}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}, gather={self.gather!r}"
        )
