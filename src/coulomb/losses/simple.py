"""Simple and hard-simple: no temperature and no softmax, the similarities themselves."""

import math
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from coulomb.checked import checked_number, checked_whole
from coulomb.losses import at_once
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.options import Loss
from coulomb.losses.pairs_at_once import PairsAtOnce
from coulomb.losses.sources import Negatives, fit_at_once, negatives_of
from coulomb.similarity.collectives import Gather


class SimpleContrastiveLoss(Loss):
    """L_i = −s_i⁺ + λ Σ_k s_ik,  s = cos   (the simple loss of Wang & Liu, 2021)

    Every negative is pushed equally hard, whatever its similarity: the limit of a high temperature. The sum over k is one
    product with the sum of all keys, O(N·D); no matrix is formed.

    When to use: as a baseline, to see what attention to hard negatives is worth; or where even one pass over the
    similarities is too slow.
    Needs: one positive a query, and negatives. No labels. λ should fall with their number.
    Temperature: none; λ weighs the push against the pull, and no negative counts more than another.
    Cost: O((N+K)·D).
    Reference: Wang & Liu, Understanding the Behaviour of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        weight: λ; 1 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`), at the cost of the N×K similarities, with softmax weights e^cos.
        gather: negatives from all processes' batches: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call the loss. See `coulomb.losses.gathering` for the convention.
            Does not concern ``negatives`` that are given: those are this process's own.

    Call with query [N, D], positive [N, D] and optionally negatives [K, D]; without, the negatives of a query are the
    positives of the other samples.

    Deviation: none known. The sum over k grows with the number of negatives: λ = 1/K makes it a mean.
    Degenerate input: without any negative (N = 1 in-batch, K = 0) the loss is −s⁺, and a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> SimpleContrastiveLoss()(torch.eye(4), torch.eye(4), torch.ones(2, 4))  # −1 + 2 cos 60°
    tensor(0.)
    """

    checks: ClassVar = {"weight": partial(checked_number, at_least=0)}

    def __init__(
        self,
        weight: float = 1.0,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.weight = weight
        self.normalize = normalize
        self.reduction = reduction
        self.gather = gather
        self.diagnose = diagnose

    def forward(
        self, query: Tensor, positive: Tensor, negatives: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        pairs = query, positive, negatives
        if fit_at_once(*pairs, gather=self.gather, reduction=self.reduction, plainly=not self.diagnose):
            return at_once.known(partial(self._at_once, *pairs), self._streamed, *pairs)
        return self._streamed(*pairs)

    def _at_once(self, query: Tensor, positive: Tensor, negatives: Tensor | None, learning: bool) -> at_once.Found:
        n, factor = len(query), at_once.factor_of(self.reduction, len(query))
        rows = at_once.Rows(("query", "positive"), (query, positive), normalize=self.normalize)
        first, second = rows.unit[:n], rows.unit[n:]
        keys, weight = None, 1 + self.weight  # the sum over the others: over all, less the own
        if negatives is not None:
            keys, weight = at_once.Rows(("negatives",), (negatives,), normalize=self.normalize), 1.0
            keys.unit, first = at_once.alike(keys.unit, first)
        queries, others = first.sum(0), (second if keys is None else keys.unit).sum(0)
        loss = (queries @ others).mul_(self.weight).sub_((first * second).sum(), alpha=weight).mul_(factor)
        if not math.isfinite(float(loss)):
            for one in filter(None, (rows, keys)):
                one.check()
        if not learning:
            return loss, ()
        grad, grad_negatives = torch.empty_like(rows.unit), None
        torch.sub(others * self.weight, second, alpha=weight, out=grad[:n])
        torch.sub(queries * self.weight if keys is None else queries.new_zeros(()), first, alpha=weight, out=grad[n:])
        if keys is not None:
            (grad_negatives,) = keys.back((queries * self.weight).expand_as(keys.unit).clone(), factor)
        return loss, (*rows.back(grad, factor), grad_negatives)

    def _streamed(self, query: Tensor, positive: Tensor, negatives: Tensor | None) -> Tensor | tuple[Tensor, Diagnosis]:
        against = negatives_of(query, positive, negatives, scale=1.0, normalize=self.normalize, gather=self.gather)
        loss = against.reduced(self.weight * self._sum(against) - against.positives, self.reduction)
        if not self.diagnose:
            return loss
        return loss, diagnose_rows(against.similarity, against.over, positive=against.positives)

    def _sum(self, against: Negatives) -> Tensor:
        """Σ_k s_ik, [N]."""
        return against.similarity.sum(against.over)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"weight={self.weight:g}, normalize={self.normalize}, reduction={self.reduction!r}, gather={self.gather!r}"
        )


class HardSimpleLoss(SimpleContrastiveLoss):
    """L_i = −s_i⁺ + λ Σ_{k ∈ top} s_ik,  s = cos   (the hard simple loss of Wang & Liu, 2021)

    The simple loss on each anchor's ``top_k`` nearest negatives alone; they are found by a streamed threshold.

    When to use: attention to hard negatives without a temperature to choose.
    Needs: one positive a query, and more negatives than ``top_k``. No labels. λ should fall with ``top_k``,
    and ``top_k`` be no smaller than training gets going with; see `HardContrastiveLoss`.
    Temperature: none; ``top_k`` takes its place (a few: the hardest alone; all: the simple loss), and λ weighs the
    push.
    Cost: 10u, u = N²·D, or 8u, u = N·K·D, with a queue that has no gradient; and a top-k a row; memory linear.
    Reference: Wang & Liu, Understanding the Behaviour of Contrastive Loss, CVPR 2021, arXiv:2012.09740.

    Args:
        weight: λ; 1 as in the paper.
        top_k: how many negatives count; 4095 as in the paper. As many as there are, if there are fewer.
        normalize, reduction, diagnose, gather: as in `SimpleContrastiveLoss`; the diagnosis is of all negatives.

    Call with query [N, D], positive [N, D] and optionally negatives [K, D]; without, the negatives of a query are the
    positives of the other samples.

    Deviation: negatives that equal the last of the top k to rounding count too.
    Degenerate input and Raises: as for `SimpleContrastiveLoss`.

    >>> HardSimpleLoss(top_k=1)(torch.eye(2), torch.eye(2), torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # −1 + cos 45°
    tensor(-0.2929)
    """

    checks: ClassVar = {"top_k": checked_whole}

    def __init__(
        self,
        weight: float = 1.0,
        top_k: int = 4095,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__(weight, normalize=normalize, reduction=reduction, diagnose=diagnose, gather=gather)
        self.top_k = top_k

    def _at_once(self, query: Tensor, positive: Tensor, negatives: Tensor | None, learning: bool) -> at_once.Found:
        pairs = PairsAtOnce(query, positive, negatives, 1.0, normalize=self.normalize)
        top = pairs.top(self.top_k)
        if top is None:
            return super()._at_once(query, positive, negatives, learning)
        factor = at_once.factor_of(self.reduction, len(query))
        total = (pairs.t * top).sum().mul_(self.weight).sub_(pairs.own.sum())
        loss = total.mul_(at_once.LN2 * factor)
        if not learning:
            return loss, ()
        return loss, pairs.back(top.mul_(self.weight), torch.ones_like(pairs.own), factor)[:3]

    def _sum(self, against: Negatives) -> Tensor:
        """Σ_{k ∈ top} s_ik, [N]."""
        return against.similarity.sum(against.over, top_k=against.fewer(self.top_k))

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return f"top_k={self.top_k}, {super().extra_repr()}"
