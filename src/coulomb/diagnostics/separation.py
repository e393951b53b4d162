"""Can positives be told from negatives, whatever the threshold?"""

import torch
from torch import Tensor

from coulomb.diagnostics.strips import strips, unit

TIE = 1e-6  # cosines that differ by no more are equal: rounding of fp32 must not decide


def separation(x: Tensor, y: Tensor, *, tie: float = TIE) -> float:
    """P(cosine of a positive pair > cosine of a negative pair), ties counting ½: the area under the ROC curve.

    ``x``, ``y`` [n,D], n ≥ 2, are two views of the same images; positives are the n pairs (i, i), negatives the n(n−1)
    others. 1: every positive is nearer than every negative; ½: no signal. Exact at any n, without thresholds or bins:
    each negative's place among the sorted positives, strip by strip; O(n²·(D + log n)) time, memory linear in n.
    Raises `InputError` for other shapes or values that are not finite.
    """
    first, second = unit(x, "x", least=2), unit(y, "y", like=x)
    positives = (first * second).sum(1).sort().values
    ids = torch.arange(len(first), device=first.device)
    n, wins = len(first), 0
    for _, cosines, counts in strips(first, second, ids, ids):
        negatives = cosines[counts]
        below = torch.searchsorted(positives, negatives - tie)  # positives that lose
        not_above = torch.searchsorted(positives, negatives + tie, right=True)  # … or tie
        wins += 2 * n * len(negatives) - int(below.sum()) - int(not_above.sum())
    return wins / (2 * n * n * (n - 1))
