"""Sums over all triplets of a batch, their gradient, and the hardest pairs, in strips of anchors.

A hinge over the pairs (p, n) of an anchor needs no list of pairs: with the negatives sorted and summed up, bisection finds
for each positive how many of them lie below p + margin and their sum. O(N² log N) time, O(strip · N) memory.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from coulomb.similarity.products import full_precision, matmul

STRIP = 2**20  # elements in a strip of anchors × all samples

Strip = tuple[slice, Tensor, Tensor, Tensor]


def terms(gap: Tensor, margin: float, soft: bool) -> Tensor:
    """The loss of triplets with d_ap − d_an = ``gap``: max(gap + m, 0), or its soft form."""
    return softplus(gap, threshold=50) if soft else relu(gap + margin)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """‖x − y‖ along the last dimension; its gradient at x = y is 0."""
    squared = (first - second).square().sum(-1)
    zero = squared == 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def anchor_strips(labels_N: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(anchors, which samples are their positives [R, N], which their negatives); unknown labels are neither."""
    known, n = labels_N >= 0, len(labels_N)
    for strip in (slice(start, min(n, start + max(1, STRIP // n))) for start in range(0, n, max(1, STRIP // n))):
        both, same = known[strip, None] & known, labels_N[strip, None] == labels_N
        itself = torch.zeros_like(same)
        itself.diagonal(strip.start).fill_(True)
        yield strip, both & same & ~itself, both & ~same


def hardest_columns(rows_ND: Tensor, labels_N: Tensor, euclidean: bool) -> tuple[Tensor, Tensor]:
    """Columns of the farthest positive and the nearest negative of each row, [N]; −1 if there is none."""
    # −‖x−y‖²/2 = x·y − ‖y‖²/2 − ‖x‖²/2, whose last term is the same for the whole row; by cosine, x·y alone.
    half_N = rows_ND.square().sum(1) / 2 if euclidean else 0
    farthest_N, nearest_N = (
        torch.zeros_like(rows_ND[:, 0]).long() + labels_N for _ in range(2)
    )  # for vmap over either
    with full_precision(rows_ND):
        for strip, positive, negative in anchor_strips(labels_N):
            near = rows_ND[strip] @ rows_ND.T - half_N
            least, column = near.masked_fill(~positive, torch.inf).min(1)
            farthest_N[strip] = column.masked_fill(least == torch.inf, -1)
            most, column = near.masked_fill(~negative, -torch.inf).max(1)
            nearest_N[strip] = column.masked_fill(most == -torch.inf, -1)
    return farthest_N, nearest_N


hardest_pairs = torch.library.custom_op("coulomb::hardest_pairs", hardest_columns, mutates_args=())
hardest_pairs.register_fake(lambda rows, labels, euclidean: (torch.empty_like(labels), torch.empty_like(labels)))


def all_pairs(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    """`triplet_terms` in plain PyTorch on a tensor of all triplets, differentiable any number of times."""
    distance = distances(rows_ND[:, None], rows_ND) if euclidean else 1 - matmul(rows_ND, rows_ND.T)
    known, same = labels_N >= 0, labels_N[:, None] == labels_N
    itself = torch.eye(len(labels_N), dtype=torch.bool, device=labels_N.device)
    counts = (same & ~itself & known)[:, :, None] & (~same & known & known[:, None])[:, None]
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
    for strip, distance, positive, negative in distance_strips(rows_ND, labels_N, euclidean):
        sums_N[strip], active_N[strip], _ = strip_terms(distance, positive, negative, margin, semihard, soft)
    return sums_N, active_N


@torch.library.custom_op("coulomb::triplet_gradient", mutates_args=())
def triplet_gradient(
    rows_ND: Tensor, labels_N: Tensor, grad_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> Tensor:
    """Σ_i grad_i ∂(sum of anchor i)/∂rows; computes the distances again."""
    out_ND = torch.zeros_like(rows_ND)
    for strip, distance, positive, negative in distance_strips(rows_ND, labels_N, euclidean):
        weight = strip_terms(distance, positive, negative, margin, semihard, soft)[2] * grad_N[strip, None]
        if euclidean:  # ∂‖x−y‖/∂x = (x−y)/‖x−y‖, and 0 where x = y
            weight = weight / distance.masked_fill(distance == 0, torch.inf)
            out_ND[strip] += weight.sum(1, keepdim=True) * rows_ND[strip]
            out_ND += weight.sum(0)[:, None] * rows_ND
        with full_precision(rows_ND):
            out_ND[strip] -= weight @ rows_ND
            out_ND -= weight.T @ rows_ND[strip]
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


def distance_strips(rows_ND: Tensor, labels_N: Tensor, euclidean: bool) -> Iterator[Strip]:
    """(anchors, their distances to all samples [R, N], positives, negatives) as in `anchor_strips`."""
    for strip, positive, negative in anchor_strips(labels_N):
        if euclidean:  # not by products, which cancel for near pairs
            distance = torch.cdist(rows_ND[strip], rows_ND, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            distance = 1 - matmul(rows_ND[strip], rows_ND.T)
        yield strip, distance, positive, negative


def strip_terms(
    distance: Tensor, positive: Tensor, negative: Tensor, margin: float, semihard: bool, soft: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(sum of the terms [R], how many are not 0 [R], ∂sum/∂distance [R, N]) of a strip of anchors."""
    rows, columns = positive.nonzero(as_tuple=True)
    if soft:
        return soft_terms(distance, rows, columns, negative, margin, semihard)
    number = positive.sum(1)
    place = torch.arange(len(rows), device=rows.device) - (number.cumsum(0) - number)[rows]
    near = distance.new_full(
        (len(distance), max(1, int(number.max()))), -torch.inf
    )  # each row's positives, then padding
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
