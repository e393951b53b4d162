"""All triplets of a batch as operators, which `torch.compile` leaves whole: their sums, the gradient, the hardest pairs."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from coulomb.losses.triplet_sums import strip_terms, strips
from coulomb.similarity import Similarity
from coulomb.similarity.exact import matmul
from coulomb.similarity.problem import full_precision


def hardest_columns(rows_ND: Tensor, labels_N: Tensor, euclidean: bool = True) -> tuple[Tensor, Tensor]:
    """Columns of the farthest positive and the nearest negative of each row, [N]; −1 where there is none."""
    # −‖x−y‖²/2 = x·y − ‖y‖²/2 − ‖x‖²/2, and the last term is one for the whole row; by cosine, x·y alone.
    half = rows_ND.square().sum(1) / 2 if euclidean else torch.zeros_like(rows_ND[:, 0])
    unknown = labels_N < 0
    columns = []
    for sign, over in ((-1.0, "positives"), (1.0, "negatives")):
        bias = (-sign * half).masked_fill(unknown, -torch.inf)  # an unknown label takes no part
        similarity = Similarity(rows_ND, scale=sign, column_bias=bias, query_ids=labels_N)
        columns.append(similarity.topk(1, over)[1].squeeze(1))
    return columns[0], columns[1]


hardest_pairs = torch.library.custom_op("coulomb::hardest_pairs", hardest_columns, mutates_args=())


@hardest_pairs.register_fake
def _(rows_ND: Tensor, labels_N: Tensor, euclidean: bool = True) -> tuple[Tensor, Tensor]:
    return torch.empty_like(labels_N), torch.empty_like(labels_N)


@torch.library.custom_op("coulomb::triplet_terms", mutates_args=())
def triplet_terms(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    """(sum of each anchor's terms [N], how many are not zero [N])."""
    sums_N, active_N = torch.zeros_like(rows_ND[:, 0]), torch.zeros_like(labels_N)
    with full_precision(rows_ND):
        for strip, distance, positive, negative in strips(rows_ND, labels_N, euclidean):
            found = strip_terms(distance, positive, negative, margin, semihard, soft)
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
    with full_precision(rows_ND):
        for strip, distance, positive, negative in strips(rows_ND, labels_N, euclidean):
            weight = strip_terms(distance, positive, negative, margin, semihard, soft)[2] * grad_N[strip, None]
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
        sums_N, _ = written_out(alias, labels_N, *ctx.options)
        return *torch.autograd.grad(sums_N, alias, grad_N, create_graph=True), *([None] * 5)


def distances(first: Tensor, second: Tensor) -> Tensor:
    """‖x − y‖ along the last dimension; its gradient at x = y is 0."""
    squared = (first - second).square().sum(-1)
    zero = squared == 0
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def written_out(
    rows_ND: Tensor, labels_N: Tensor, margin: float, semihard: bool, soft: bool, euclidean: bool
) -> tuple[Tensor, Tensor]:
    """The same as `triplet_terms` in plain torch, differentiable any number of times, also by `torch.func`."""
    distance = distances(rows_ND[:, None], rows_ND) if euclidean else 1 - matmul(rows_ND, rows_ND.T)
    sums, active = [], []
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
        active.append((kept if soft else kept & (terms > 0)).sum())
    return torch.stack(sums), torch.stack(active)
