"""Debiased: some negatives are of the anchor's own class; take their expected share out of the sum."""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.checked import checked_number
from coulomb.losses import at_once
from coulomb.losses.arguments import check_pair, paired_embeddings, warn_counted
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.gathering import reduced_in
from coulomb.losses.options import Loss
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather, group_of
from coulomb.similarity.problem import powered
from coulomb.similarity.products import product


@dataclass(frozen=True)
class DebiasedDiagnosis(Diagnosis):
    """A `Diagnosis` that also counts the anchors whose estimate fell to its lower bound.

    Attributes:
        bounded: how many anchors' N_g is its least possible value, so that their negatives get no gradient; 0-dim integer.
    """

    bounded: Tensor


class DebiasedLoss(Loss):
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

    checks: ClassVar = {
        "temperature": checked_temperature,
        "tau_plus": partial(checked_number, at_least=0, below=1),
    }

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
        self.temperature = temperature
        self.tau_plus = tau_plus
        self.normalize = normalize
        self.reduction = reduction
        self.gather = gather
        self.diagnose = diagnose

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        check_pair(("view0", "view1"), view0, view1)
        scale, rows = scale_of(self.temperature), 2 * len(view0)
        plainly = self.normalize and not self.diagnose and len(view0) > 1 and group_of(self.gather) is None
        if at_once.fits(rows, rows, view0, reduction=self.reduction, plainly=plainly) and at_once.within(
            view0.dtype, scale, self._powers()[-1]
        ):
            return at_once.known(partial(self._at_once, view0, view1, scale), self._streamed, view0, view1, scale)
        return self._streamed(view0, view1, scale)

    def _at_once(self, view0: Tensor, view1: Tensor, scale: float | Tensor, learning: bool) -> at_once.Found:
        n, powers = len(view0), self._powers()
        rows = at_once.Rows(("view0", "view1"), (view0, view1), normalize=True)
        unit, log_count = rows.unit, math.log(2 * n - 2)
        t = at_once.exponents(unit, unit, scale)
        own = at_once.own_of_views_(t).mul_(at_once.LN2)
        exponentials = list(powered(t, powers, t.new_empty(t.numel()) if len(powers) > 1 else None))
        totals = [each.sum(1) for each in exponentials]
        log_negatives = totals[0].log() if len(powers) == 1 else (totals[1] / totals[0]).log_().add_(log_count)
        excess = log_negatives.view(2, n) - own
        slope, bounded = torch.ones_like(excess), None
        if self.tau_plus > 0:
            share = excess.neg().add_(math.log(self.tau_plus) + log_count)
            excess, bounded = debiased(excess, log_count, self.tau_plus, log_count - scale - own)
            slope = torch.where(bounded, 1, torch.expm1(share).reciprocal_().neg_())  # ∂ log N_g / ∂ log Σ
        losses, pull = softplus(excess, threshold=50), excess.sigmoid().mul_(slope)
        loss = losses.mean() if self.reduction == "mean" else losses.sum()
        if not learning:
            return loss, ()
        push = pull if bounded is None else pull.masked_fill(bounded, 0)
        gradient: Tensor | None = None
        for power, sign, each, total in zip(powers, (-1, 1)[-len(powers) :], exponentials, totals, strict=True):
            weight = (push.view(-1) / total).mul_(sign * power)
            part = each.mul_(weight[:, None] + weight)
            gradient = part if gradient is None else gradient.add_(part)
        assert gradient is not None
        at_once.pull_views_(gradient, pull)
        grad, factor, grad_scale = product(gradient, unit.T), at_once.factor_of(self.reduction, 2 * n), None
        if isinstance(scale, Tensor):
            at_bound = 0.0 if bounded is None else pull[bounded].sum()
            grad_scale = ((unit * grad).sum() / 2 - at_bound) * factor
        return loss, (*rows.back(grad, scale * factor), grad_scale)

    def _powers(self) -> tuple[float, ...]:
        """Of e^s, whose sums make up N_g: Σ e^s, or with two of them M·Σ e^{second·s}/Σ e^{first·s}."""
        return (1.0,)

    def _streamed(self, view0: Tensor, view1: Tensor, scale: float | Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
        rows = paired_embeddings(("view0", "view1"), view0, view1, normalize=self.normalize)
        n, group = len(view0), group_of(self.gather)
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
