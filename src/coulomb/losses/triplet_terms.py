"""All triplets of a batch without a tensor of them: hinges by sorting and prefix sums; and the hardest pairs by streaming.

A hinge over pairs (p, n) of an anchor needs no list of pairs: with the negatives sorted and summed up, each positive finds
by bisection how many lie below p + margin and what they add to. O(N² log N) time, O(strip · N) memory. These are operators
of their own, which `torch.compile` leaves whole.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from coulomb.similarity import Similarity

STRIP = 2**20  # elements of a strip of anchors × all, or of one anchor's pairs


@torch.library.custom_op("coulomb::hardest_pairs", mutates_args=())
def hardest_pairs(rows_ND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of the farthest positive and the nearest negative of each row, [N]; −1 where there is none."""
    # −‖x−y‖²/2 = x·y − ‖y‖²/2 − ‖x‖²/2, and the last term is one for the whole row. For unit rows, the cosine's order.
    half = rows_ND.square().sum(1) / 2
    unknown = labels_N < 0
    columns = []
    for sign, over in ((-1.0, "positives"), (1.0, "negatives")):
        bias = (-sign * half).masked_fill(unknown, -torch.inf)  # an unknown label takes no part
        similarity = Similarity(rows_ND, scale=sign, column_bias=bias, query_ids=labels_N)
        columns.append(similarity.topk(1, over)[1].squeeze(1))
    return columns[0], columns[1]


@hardest_pairs.register_fake
def _(rows_ND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(labels_N), torch.empty_like(labels_N)


@torch.library.custom_op("coulomb::triplet_terms", mutates_args=())
def triplet_terms(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    """(sum of each anchor's terms [N], how many are not zero [N])."""
    sums_N, active_N = torch.zeros_like(rows_ND[:, 0]), torch.zeros_like(labels_N)
    with torch.autocast(rows_ND.device.type, enabled=False):
        for strip, distance, positive, negative in _strips(rows_ND, labels_N, euclidean):
            found = _terms(distance, positive, negative, margin, semihard, soft)
            sums_N[strip], active_N[strip], _ = found
    return sums_N, active_N


@triplet_terms.register_fake
def _(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    return rows_ND.new_empty(len(rows_ND)), torch.empty_like(labels_N)


@torch.library.custom_op("coulomb::triplet_gradient", mutates_args=())
def triplet_gradient(
    rows_ND: Tensor, labels_N: Tensor, grad_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> Tensor:
    """Σ_i grad_i ∂(sum of anchor i)/∂rows, from the distances computed once more."""
    out_ND = torch.zeros_like(rows_ND)
    with torch.autocast(rows_ND.device.type, enabled=False):
        for strip, distance, positive, negative in _strips(rows_ND, labels_N, euclidean):
            weight = _terms(distance, positive, negative, margin, semihard, soft)[2] * grad_N[strip, None]
            if euclidean:  # ∂‖x−y‖/∂x = (x−y)/‖x−y‖, and 0 where x = y
                weight = weight / distance.masked_fill(distance == 0, torch.inf)
                out_ND[strip] += weight.sum(1, keepdim=True) * rows_ND[strip]
                out_ND += weight.sum(0)[:, None] * rows_ND
            out_ND[strip] -= weight @ rows_ND
            out_ND -= weight.T @ rows_ND[strip]
    return out_ND


@triplet_gradient.register_fake
def _(
    rows_ND: Tensor, labels_N: Tensor, grad_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> Tensor:
    return torch.empty_like(rows_ND)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows_ND, labels_N, *ctx.options = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(rows_ND, labels_N)


def _backward(ctx: Any, grad_N: Tensor, _: Any) -> tuple[Any, ...]:
    rows_ND, labels_N = ctx.saved_tensors
    return torch.ops.coulomb.triplet_gradient(rows_ND, labels_N, grad_N, *ctx.options), *([None] * 5)


triplet_terms.register_autograd(_backward, setup_context=_keep)


class TripletTerms(torch.autograd.Function):
    """`triplet_terms` for eager autograd and torch.func, with a second derivative (in plain torch, N²·D memory)."""

    generate_vmap_rule = False

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        """(sum of each anchor's terms, how many are not zero)."""
        out: tuple[Tensor, Tensor] = triplet_terms(*inputs)
        return out

    setup_context = staticmethod(_keep)

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor, _: Any) -> tuple[Any, ...]:
        """Gradient for the rows."""
        if not torch.is_grad_enabled():
            return _backward(ctx, grad_N, None)
        rows_ND, labels_N = ctx.saved_tensors
        alias = rows_ND.view_as(rows_ND)
        sums_N = _written_out(alias, labels_N, *ctx.options)
        return *torch.autograd.grad(sums_N, alias, grad_N, create_graph=True), *([None] * 5)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """‖x − y‖ along the last dimension; its gradient at x = y is 0."""
    squared = (first - second).square().sum(-1)
    zero = squared == 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def _strips(rows_ND: Tensor, labels_N: Tensor, euclidean: bool) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
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


def _terms(
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


def _written_out(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> Tensor:
    """The same sums [N] in plain torch, differentiable any number of times."""
    with torch.autocast(rows_ND.device.type, enabled=False):
        distance = distances(rows_ND[:, None], rows_ND) if euclidean else 1 - rows_ND @ rows_ND.T
    sums = []
    for i in range(len(rows_ND)):
        same = labels_N == labels_N[i]
        positive = same & (torch.arange(len(same), device=same.device) != i) & (labels_N[i] >= 0)
        negative = ~same & (labels_N >= 0) & (labels_N[i] >= 0)
        gap = distance[i][:, None] - distance[i]
        kept = positive[:, None] & negative
        if semihard:
            kept = kept & (gap < 0) & (-gap <= margin)
        terms = softplus(gap, threshold=50) if soft else relu(gap + margin)
        sums.append(terms.masked_fill(~kept, 0).sum())
    return torch.stack(sums)
