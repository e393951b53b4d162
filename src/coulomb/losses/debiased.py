"""Debiased: subtract the expected share of false negatives from the sum over the negatives."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.losses.diagnosis import Diagnosis, Result
from coulomb.losses.negatives import Contrast, ContrastiveLoss
from coulomb.losses.options import Share, Tau
from coulomb.losses.temperature import scale_of


@dataclass(frozen=True)
class DebiasedDiagnosis(Diagnosis):
    """A `Diagnosis` that also counts the anchors whose N_g is at its lower bound.

    Attributes:
        bounded: number of anchors whose N_g is at its lower bound, so that their negatives get no gradient; a 0-dim
            integer tensor.
    """

    bounded: Tensor


class DebiasedLoss(ContrastiveLoss):
    """L_i = softplus(log N_g − s⁺),  N_g = max((Σ_k e^{s_ik} − τ⁺M e^{s⁺})/(1−τ⁺), M e^{−1/τ})   (Chuang et al., 2020)

    s = cos/τ; k runs over the M = 2N−2 views of other samples; the mean is over all 2N anchors. A fraction τ⁺ of the
    negatives is assumed to have the anchor's class and to be as similar to it as its positive. Computed in log space.

    When to use: unlabeled data in which many negatives are likely to have the anchor's class, because there are few
    classes or many duplicates.
    Needs: two views of each sample, and an estimate of τ⁺.
    Temperature: negatives are weighted as in NT-Xent while N_g is above its bound. At a low τ, τ⁺e^{s⁺} exceeds the mean
    of e^s, and no negative gets a gradient; stay near 0.5 (``diagnose=True`` counts such anchors).
    Cost: 4u with u = (2N)²·D. Memory is linear in N.
    Reference: Chuang et al., Debiased Contrastive Learning, NeurIPS 2020, arXiv:2007.00224.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.5 as in the authors' code.
        tau_plus: τ⁺ in [0, 1), the probability that a random sample has the anchor's class: 1/classes if they are
            balanced. 0.1 as in the authors' code (CIFAR-10). 0 gives NT-Xent.
        normalize: scale rows to unit length. If False, the bound e^{−1/τ} is no longer the minimum of e^s.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([2N]: all of view 0, then all of view 1).
        diagnose: return (loss, `DebiasedDiagnosis`).
        gather: use the samples of all processes as negatives (M counts them all). True, False, or ``"auto"``: True if
            torch.distributed is initialized with several processes, which must then all call the loss. See
            `coulomb.losses.negatives` for the convention.

    Shape:
        view0, view1: [N, D].
        output: scalar, or [2N] with ``reduction="none"``.

    Deviation: none in value. The authors' exponentials overflow in fp16 below τ = 0.09; this implementation does not.
    Degenerate input: where N_g is at its bound, negatives get no gradient (``diagnose=True`` counts such anchors).
    N = 1 has no negatives: the loss is 0, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> DebiasedLoss()(torch.ones(8, 3), torch.ones(8, 3))  # equal features: N_g = M e^s, ln 15
    tensor(2.7081)
    """

    temperature: Tau = 0.5
    tau_plus: Share = 0.1

    def forward(self, view0: Tensor, view1: Tensor) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            view0: embeddings of one view of each sample.
            view1: embeddings of another view of the same samples.
        """
        contrast = self._views(view0, view1, scale_of(self.temperature))
        log_sum = contrast.similarity.lse("negatives")
        excess, bounded = debiased(contrast, log_sum - contrast.positives, self.tau_plus)
        return with_bounded(self._result(contrast, softplus(excess, threshold=50)), bounded)


def debiased(contrast: Contrast, excess: Tensor, tau_plus: float) -> tuple[Tensor, Tensor]:
    """Returns log N_g − s⁺, [2N], and a mask of the anchors whose N_g is at its lower bound.

    ``excess`` is log Σ_k e^{s_ik} − s⁺. The gradient is exact in both cases: the branch that is not selected contributes
    none, even if its own gradient is infinite.
    """
    if tau_plus == 0 or contrast.count == 0:
        return excess, torch.zeros_like(excess, dtype=torch.bool)
    log_count = math.log(contrast.count)
    least = log_count - contrast.similarity.scale - contrast.positives
    share = math.log(tau_plus) + log_count - excess  # log of the fraction of Σ that is subtracted
    below_one = share < 0
    left = excess + (-torch.expm1(torch.where(below_one, share, -1))).log() - math.log1p(-tau_plus)
    bounded = ~(below_one & (left > least))
    return torch.where(bounded, least, left), bounded


def with_bounded(result: Result, bounded: Tensor) -> Result:
    """Returns ``result`` with its `Diagnosis`, if any, replaced by a `DebiasedDiagnosis`."""
    if isinstance(result, Tensor):
        return result
    return result[0], DebiasedDiagnosis(**vars(result[1]), bounded=bounded.sum())
