"""Debiased: subtract the expected share of false negatives from the sum over the negatives."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.losses.diagnosis import Diagnosis
from coulomb.losses.negatives import Contrast, ContrastiveLoss
from coulomb.losses.options import Share, Tau
from coulomb.losses.temperature import inverse


@dataclass(frozen=True)
class DebiasedDiagnosis(Diagnosis):
    """A `Diagnosis` that also counts the anchors whose estimate fell to its lower bound.

    Attributes:
        bounded: how many anchors' N_g is its least possible value, so that their negatives get no gradient; 0-dim integer.
    """

    bounded: Tensor


class DebiasedLoss(ContrastiveLoss):
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
            initialised with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
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

    temperature: Tau = 0.5
    tau_plus: Share = 0.1

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        contrast = self._views(view0, view1, inverse(self.temperature))
        log_sum = contrast.similarity.lse("negatives")
        excess, bounded = debiased(contrast, log_sum - contrast.positives, self.tau_plus)
        return with_bounded(self._result(contrast, softplus(excess, threshold=50)), bounded)


def debiased(contrast: Contrast, excess: Tensor, tau_plus: float) -> tuple[Tensor, Tensor]:
    """log N_g − s⁺ of ``excess`` = log Σ_k e^{s_ik} − s⁺, [2N], and where it is its lower bound.

    The gradient is exact on both sides. A branch that is not chosen contributes none, even if its own is infinite.
    """
    if tau_plus == 0 or contrast.count == 0:
        return excess, torch.zeros_like(excess, dtype=torch.bool)
    log_count = math.log(contrast.count)
    least = log_count - contrast.similarity.scale - contrast.positives
    share = math.log(tau_plus) + log_count - excess  # log of the share of Σ that is subtracted
    below_one = share < 0
    left = excess + (-torch.expm1(torch.where(below_one, share, -1))).log() - math.log1p(-tau_plus)
    bounded = ~(below_one & (left > least))
    return torch.where(bounded, least, left), bounded


def with_bounded(result: Tensor | tuple[Tensor, Diagnosis], bounded: Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
    """``result`` with its `Diagnosis` as a `DebiasedDiagnosis`."""
    if isinstance(result, Tensor):
        return result
    return result[0], DebiasedDiagnosis(**vars(result[1]), bounded=bounded.sum())
