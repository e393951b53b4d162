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
    rows, columns, place, most = _positives(positive)
    near = distance.new_full((len(distance), most), -torch.inf)  # each row's positives, then nothing
    near[rows, place] = distance[rows, columns]
    reach = near + margin
    below, order = distance.masked_fill(~negative, torch.inf).sort(1)
    totals = below.masked_fill(below == torch.inf, 0).double().cumsum(1)
    totals = torch.cat([torch.zeros_like(totals[:, :1]), totals], 1)
    # A positive p meets the negatives n < p + margin; semi-hard: only those farther than itself, p < n.
    upper = torch.searchsorted(below, reach)
    lower = torch.searchsorted(below, near, right=True).minimum(upper) if semihard else torch.zeros_like(upper)
    count = upper - lower
    sums = count * reach.double() - (totals.gather(1, upper) - totals.gather(1, lower))
    # How many positives each negative meets: +1 from `lower` on, −1 from `upper` on, summed up in the order of `below`.
    ends = torch.zeros(len(distance), distance.shape[1] + 1, dtype=torch.long, device=distance.device)
    one = torch.ones_like(count)
    met = ends.scatter_add_(1, lower, one).scatter_add_(1, upper, -one).cumsum(1)[:, :-1]
    weight = torch.zeros_like(met).scatter_(1, order, -met)
    weight[rows, columns] = count[rows, place]
    return sums.masked_fill(count == 0, 0).sum(1).to(distance.dtype), count.sum(1), weight.to(distance.dtype)


def _positives(positive: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Row, column and place within its row of every positive, and the most that a row has."""
    rows, columns = positive.nonzero(as_tuple=True)
    number = positive.sum(1)
    place = torch.arange(len(rows), device=rows.device) - (number.cumsum(0) - number)[rows]
    return rows, columns, place, max(1, int(number.max()))


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
