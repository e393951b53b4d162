"""Sums over all triplets of a batch, their gradient, and the hardest pairs, in strips of anchors.

A hinge over the pairs (p, n) of an anchor needs no list of pairs: with the negatives sorted and summed up, bisection finds
for each positive how many of them lie below p + margin and their sum. O(N² log N) time, O(strip · N) memory.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from coulomb.similarity.products import matmul

STRIP = 2**20  # elements in a strip of anchors × all samples


def terms(gap: Tensor, margin: float, soft: bool) -> Tensor:
    """The loss of triplets with d_ap − d_an = ``gap``: max(gap + m, 0), or its soft form."""
    return softplus(gap, threshold=50) if soft else relu(gap + margin)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """‖x − y‖ along the last dimension; its gradient at x = y is 0."""
    squared = (first - second).square().sum(-1)
    zero = squared == 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def related(labels_N: Tensor, strip: slice = slice(None)) -> tuple[Tensor, Tensor]:
    """Which samples are positives and which are negatives of the anchors in ``strip``, [R, N]; unknown labels are neither."""
    known, same = labels_N >= 0, labels_N[strip, None] == labels_N
    both, itself = known[strip, None] & known, torch.zeros_like(same)
    itself.diagonal(strip.start or 0).fill_(True)
    return both & same & ~itself, both & ~same


def strips(
    rows_ND: Tensor, labels_N: Tensor, euclidean: bool, exact: bool = True
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """(anchors, their distances to all samples [R, N], positives, negatives); ``exact``: small distances do not cancel."""
    n, height = len(labels_N), max(1, STRIP // len(labels_N))
    mode = "donot_use_mm_for_euclid_dist" if exact else "use_mm_for_euclid_dist"
    for strip in (slice(start, min(n, start + height)) for start in range(0, n, height)):
        first = rows_ND[strip]
        distance = torch.cdist(first, rows_ND, 2.0, mode) if euclidean else 1 - matmul(first, rows_ND.T)
        yield strip, distance, *related(labels_N, strip)


def hardest_columns(rows_ND: Tensor, labels_N: Tensor, euclidean: bool) -> tuple[Tensor, Tensor]:
    """Columns of the farthest positive and the nearest negative of each row, [N]; −1 if there is none."""
    both = torch.zeros_like(rows_ND[:, 0]).long() + labels_N  # vmap can write into it, whichever of the two is batched
    farthest_N, nearest_N = both.clone(), both
    for strip, distance, positive, negative in strips(rows_ND, labels_N, euclidean, exact=False):
        most, column = distance.masked_fill(~positive, -torch.inf).max(1)
        farthest_N[strip] = column.masked_fill(most == -torch.inf, -1)
        least, column = distance.masked_fill(~negative, torch.inf).min(1)
        nearest_N[strip] = column.masked_fill(least == torch.inf, -1)
    return farthest_N, nearest_N


hardest_pairs = torch.library.custom_op("coulomb::hardest_pairs", hardest_columns, mutates_args=())
hardest_pairs.register_fake(lambda rows, labels, euclidean: (torch.empty_like(labels), torch.empty_like(labels)))


def all_pairs(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    """`triplet_terms` in plain PyTorch on a tensor of all triplets, differentiable any number of times."""
    distance = distances(rows_ND[:, None], rows_ND) if euclidean else 1 - matmul(rows_ND, rows_ND.T)
    positive, negative = related(labels_N)
    counts = positive[:, :, None] & negative[:, None]
    gap = distance[:, :, None] - distance[:, None]
    if semihard:
        counts = counts & (gap < 0) & (-gap <= margin)
    values = terms(gap, margin, soft).masked_fill(~counts, 0)
    return values.sum((1, 2)), (counts if soft else counts & (values > 0)).sum((1, 2))


@torch.library.custom_op("coulomb::triplet_terms", mutates_args=())
def triplet_terms(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    """(sum of each anchor's terms [N], how many are not 0 [N])."""
    sums_N, active_N = torch.empty_like(rows_ND[:, 0]), torch.empty_like(labels_N)
    for strip, distance, positive, negative in strips(rows_ND, labels_N, euclidean):
        sums_N[strip], active_N[strip], _ = strip_terms(distance, positive, negative, margin, semihard, soft)
    return sums_N, active_N


@torch.library.custom_op("coulomb::triplet_gradient", mutates_args=())
def triplet_gradient(
    rows_ND: Tensor, labels_N: Tensor, grad_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> Tensor:
    """Σ_i grad_i ∂(sum of anchor i)/∂rows; computes the distances again."""
    out_ND = torch.zeros_like(rows_ND)
    for strip, distance, positive, negative in strips(rows_ND, labels_N, euclidean):
        weight = strip_terms(distance, positive, negative, margin, semihard, soft)[2] * grad_N[strip, None]
        if euclidean:  # ∂‖x−y‖/∂x = (x−y)/‖x−y‖, and 0 where x = y
            weight = weight / distance.masked_fill(distance == 0, torch.inf)
            out_ND[strip] += weight.sum(1, keepdim=True) * rows_ND[strip]
            out_ND += weight.sum(0)[:, None] * rows_ND
        out_ND[strip] -= matmul(weight, rows_ND)
        out_ND -= matmul(weight.T, rows_ND[strip])
    return out_ND


triplet_terms.register_fake(lambda rows, labels, *_: (rows.new_empty(len(rows)), torch.empty_like(labels)))
triplet_gradient.register_fake(lambda rows, *_: torch.empty_like(rows))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows_ND, labels_N, *ctx.options = inputs
    ctx.save_for_backward(rows_ND, labels_N)


def _backward(ctx: Any, grad_N: Tensor, _: Any) -> tuple[Any, ...]:
    rows_ND, labels_N = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative follows
        alias = rows_ND.view_as(rows_ND)
        sums_N, _ = all_pairs(alias, labels_N, *ctx.options)
        (grad_ND,) = torch.autograd.grad(sums_N, alias, grad_N, create_graph=True)
    else:
        grad_ND = triplet_gradient(rows_ND, labels_N, grad_N, *ctx.options)
    return grad_ND, *([None] * 5)


triplet_terms.register_autograd(_backward, setup_context=_save)


def strip_terms(
    distance: Tensor, positive: Tensor, negative: Tensor, margin: float, semihard: bool, soft: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(sum of the terms [R], how many are not 0 [R], ∂sum/∂distance [R, N]) of a strip of anchors."""
    rows, columns = positive.nonzero(as_tuple=True)
    if soft:
        return soft_terms(distance, rows, columns, negative, margin, semihard)
    number = positive.sum(1)
    place = torch.arange(len(rows), device=rows.device) - (number.cumsum(0) - number)[rows]
    # The distances of each row's positives, then padding.
    near = distance.new_full((len(distance), max(1, int(number.max()))), -torch.inf)
    near[rows, place] = distance[rows, columns]
    reach = near + margin
    below, order = distance.masked_fill(~negative, torch.inf).sort(1)
    totals = torch.nn.functional.pad(below.masked_fill(below == torch.inf, 0).double().cumsum(1), (1, 0))
    # A positive p meets the negatives n < p + margin; semi-hard: only those farther than itself, p < n.
    upper = torch.searchsorted(below, reach)
    lower = torch.searchsorted(below, near, right=True).minimum(upper) if semihard else torch.zeros_like(upper)
    count = upper - lower
    sums = count * reach.double() - (totals.gather(1, upper) - totals.gather(1, lower))
    # How many positives each negative meets: +1 from `lower` on, −1 from `upper` on, accumulated in the order of `below`.
    ends, one = torch.zeros_like(totals, dtype=torch.long), torch.ones_like(count)
    met = ends.scatter_add_(1, lower, one).scatter_add_(1, upper, -one).cumsum(1)[:, :-1]
    weight = torch.zeros_like(met).scatter_(1, order, -met)
    weight[rows, columns] = count[rows, place]
    return sums.masked_fill(count == 0, 0).sum(1).to(distance.dtype), count.sum(1), weight.to(distance.dtype)


def soft_terms(
    distance: Tensor, rows: Tensor, columns: Tensor, negative: Tensor, margin: float, semihard: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`strip_terms` of softplus(p − n), which has no such sums: takes all pairs of a positive (row, column) and a negative."""
    sums, weight = torch.zeros_like(distance[:, 0]), torch.zeros_like(distance)
    active = torch.zeros_like(sums, dtype=torch.long)
    chunk = max(1, STRIP // distance.shape[1])
    for row, column in zip(rows.split(chunk), columns.split(chunk), strict=True):
        gap, counts = distance[row, column, None] - distance[row], negative[row]
        if semihard:
            counts = counts & (gap < 0) & (-gap <= margin)
        slope = gap.sigmoid().masked_fill(~counts, 0)
        weight.index_add_(0, row, slope, alpha=-1)
        weight[row, column] += slope.sum(1)
        sums.index_add_(0, row, softplus(gap, threshold=50).masked_fill(~counts, 0).sum(1))
        active.index_add_(0, row, counts.sum(1))
    return sums, active, weight
