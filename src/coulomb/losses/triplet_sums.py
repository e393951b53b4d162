"""Sums over all triplets of an anchor without a tensor of them.

A hinge over pairs (p, n) of an anchor needs no list of pairs: with the negatives sorted and summed up, each positive finds
by bisection how many lie below p + margin and what they add to. O(N² log N) time, O(strip · N) memory.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import softplus

STRIP = 2**20  # elements of a strip of anchors × all, or of one anchor's pairs


def strips(rows_ND: Tensor, labels_N: Tensor, euclidean: bool) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """(anchors, distances [R, N], which are positives, which are negatives); an unknown label is neither."""
    n = len(rows_ND)
    known = labels_N >= 0
    height = max(1, STRIP // n)
    for start in range(0, n, height):
        strip = slice(start, min(start + height, n))
        if euclidean:  # not by products, which cancel for near pairs
            distance = torch.cdist(rows_ND[strip], rows_ND, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            distance = 1 - rows_ND[strip] @ rows_ND.T
        both = known[strip, None] & known
        same = labels_N[strip, None] == labels_N
        positive, negative = both & same, both & ~same
        positive.diagonal(start).fill_(False)
        yield strip, distance, positive, negative


def strip_terms(
    distance: Tensor, positive: Tensor, negative: Tensor, margin: float, semihard: bool, soft: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(sum of the terms [R], how many are not zero [R], ∂sum/∂distance [R, N]) for a strip of anchors."""
    if soft:
        return _soft_terms(distance, positive, negative, margin, semihard)
    reach = distance + margin
    below = distance.masked_fill(~negative, torch.inf).sort(1).values
    totals = below.masked_fill(below == torch.inf, 0).double().cumsum(1)
    totals = torch.cat([torch.zeros_like(totals[:, :1]), totals], 1)
    # A positive p meets the negatives n < p + margin; semi-hard: only those farther than itself, p < n.
    upper = torch.searchsorted(below, reach)
    lower = torch.searchsorted(below, distance, right=True) if semihard else torch.zeros_like(upper)
    count = (upper - lower).clamp_min(0).masked_fill(~positive, 0)
    sums = count * reach.double() - (totals.gather(1, upper) - totals.gather(1, lower))
    # A negative n meets the positives with p + margin > n; semi-hard: less those with p ≥ n.
    met = _at_or_above(reach, positive, distance, right=True)
    if semihard:
        met = met - _at_or_above(distance, positive, distance, right=False)
    weight = count - met.clamp_min(0).masked_fill(~negative, 0)
    return sums.masked_fill(count == 0, 0).sum(1).to(distance.dtype), count.sum(1), weight.to(distance.dtype)


def _at_or_above(values: Tensor, kept: Tensor, thresholds: Tensor, *, right: bool) -> Tensor:
    """How many of a row's kept values are above each threshold (``right``), or at least as large."""
    ordered = values.masked_fill(~kept, -torch.inf).sort(1).values
    return values.shape[1] - torch.searchsorted(ordered, thresholds, right=right)


def _soft_terms(
    distance: Tensor, positive: Tensor, negative: Tensor, margin: float, semihard: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """softplus(p − n) has no such sums: one anchor's pairs at a time."""
    sums, weight = torch.zeros_like(distance[:, 0]), torch.zeros_like(distance)
    active = torch.zeros_like(sums, dtype=torch.long)
    for i in range(len(distance)):
        far = distance[i, negative[i]]
        columns = positive[i].nonzero().squeeze(1)
        for some in columns.split(max(1, STRIP // max(1, len(far)))):
            near = distance[i, some, None]
            chosen = (near < far) & (far <= near + margin) if semihard else torch.ones_like(near < far)
            sums[i] += softplus(near - far, threshold=50).masked_fill(~chosen, 0).sum()
            slope = (near - far).sigmoid().masked_fill(~chosen, 0)
            weight[i, some] = slope.sum(1)
            weight[i, negative[i]] -= slope.sum(0)
            active[i] += chosen.sum()
    return sums, active, weight
