"""Debiased: some negatives are of the anchor's own class; take their expected share out of the sum."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from coulomb.checked import checked_number
from coulomb.losses.arguments import REDUCTIONS, checked_choice, paired_embeddings, warn_counted
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.gathering import reduced_in
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.groups import Gather, checked_gather, group_of


@dataclass(frozen=True)
class DebiasedDiagnosis(Diagnosis):
    """A `Diagnosis` that also counts the anchors whose estimate fell to its lower bound.

    Attributes:
        bounded: how many anchors' N_g is its least possible value, so that their negatives get no gradient; 0-dim integer.
    """

    bounded: Tensor


class DebiasedLoss(nn.Module):
    """L_i = softplus(log N_g − s⁺),  N_g = max((Σ_k e^{s_ik} − τ⁺M e^{s⁺})/(1−τ⁺), M e^{−1/τ})   (Chuang et al., 2020)

    s = cos/τ; k runs over the M = 2N−2 views of other samples; mean over all 2N anchors. A share τ⁺ of the negatives is
    taken to be of the anchor's class, as near to it as its positive is. Computed in log space throughout.

    When to use: no labels, but many negatives are likely to be of the anchor's class: few classes, or duplicates.
    Needs: two views of each sample, and a guess of τ⁺.
    Temperature: negatives are weighed as by NT-Xent, as long as N_g is above its bound. A low τ makes τ⁺e^{s⁺} outgrow
    the mean of e^s, and then no negative gets a gradient: stay near 0.5 (``diagnose=True`` counts such anchors).
    Cost: 4u, u = (2N)²·D; memory linear.
    Reference: Chuang et al., Debiased Contrastive Learning, NeurIPS 2020, arXiv:2007.00224.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.5 as in the authors' code.
        tau_plus: τ⁺ in [0, 1), the chance that a random sample has the anchor's class: 1/classes when they are balanced.
            0.1 as in the authors' code (CIFAR-10). 0 is NT-Xent.
        normalize: scale rows to unit length. Without, the bound e^{−1/τ} is no longer the least value of e^s.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([2N]: all of view 0, then all of view 1).
        diagnose: return (loss, `DebiasedDiagnosis`).
        gather: negatives (M of them) from all processes' batches: True, False, or ``"auto"``, when torch.distributed is
            initialised with several processes, which must then all call the loss. See `coulomb.losses.gathering` for the
            convention.

    Call with view0 [N, D] and view1 [N, D].

    Deviation: none in value. The authors' exponentials overflow in fp16 below τ = 0.09; these do not.
    Degenerate input: where N_g is its bound, negatives get no gradient (``diagnose=True`` counts such anchors).
    N = 1 has no negatives: the loss is 0, and a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> DebiasedLoss()(torch.ones(8, 3), torch.ones(8, 3))  # equal features: N_g = M e^s, ln 15
    tensor(2.7081)
    """

    def __init__(
        self,
        temperature: Temperature = 0.5,
        tau_plus: float = 0.1,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.temperature = checked_temperature(temperature)
        self.tau_plus = checked_number("tau_plus", tau_plus, at_least=0, below=1)
        self.normalize = normalize
        self.reduction = checked_choice("reduction", reduction, REDUCTIONS)
        self.gather = checked_gather(gather)
        self.diagnose = diagnose

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        rows = paired_embeddings(("view0", "view1"), view0, view1, normalize=self.normalize)
        n = len(view0)
        scale, group = scale_of(self.temperature), group_of(self.gather)
        similarity = Similarity(rows, scale=scale, instances=n, unit=self.normalize, half=view0.dtype, group=group)
        anchors = similarity.number_of_keys
        if anchors == 2:
            warn_counted(2, 2, "anchors have no negative (N = 1): their loss is 0 and teaches nothing")
        first, second = rows.view(2, n, -1).unbind()
        positives = similarity.scale * (first * second).sum(1)
        log_count = math.log(anchors - 2) if anchors > 2 else -math.inf
        excess = self._log_negatives(similarity, log_count).view(2, n) - positives
        bounded = torch.zeros_like(excess, dtype=torch.bool)
        if self.tau_plus > 0:
            least = log_count - similarity.scale - positives
            excess, bounded = debiased(excess, log_count, self.tau_plus, least)
        loss = reduced_in(group, softplus(excess, threshold=50).flatten(), self.reduction, anchors)
        if not self.diagnose:
            return loss
        seen = diagnose_rows(similarity, positive=positives.repeat(2))
        return loss, DebiasedDiagnosis(**vars(seen), bounded=bounded.sum())

    def _log_negatives(self, similarity: Similarity, log_count: float) -> Tensor:
        """log Σ_k e^{s_ik}, [2N]."""
        return similarity.lse("negatives")

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"{describe_temperature(self.temperature)}, tau_plus={self.tau_plus:g}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}, gather={self.gather!r}"
        )


def debiased(excess: Tensor, log_count: float, tau_plus: float, least: Tensor) -> tuple[Tensor, Tensor]:
    """log((e^excess − τ⁺M)/(1−τ⁺)), or ``least`` where that is more; and where so. All relative to s⁺.

    The gradient is exact on both sides; what is not chosen contributes none, infinite though its own may be.
    """
    share = math.log(tau_plus) + log_count - excess  # log of the share of Σ that is taken out
    some_left = share < 0
    left = excess + (-torch.expm1(torch.where(some_left, share, -1))).log() - math.log1p(-tau_plus)
    kept = some_left & (left > least)
    return torch.where(kept, left, least), ~kept
