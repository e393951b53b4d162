"""The positive against the rest: softplus(lse − s⁺), as one operation where the problem is small.

Small problems take as long as their number of operations, so that the composition of `fold`, positives and softplus is
written out here with its derivative. It has no other purpose: large problems take the composition.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.similarity import dense, kept
from coulomb.similarity.graph import aliased
from coulomb.similarity.problem import LOG2E, Problem, full_precision


def losses(row_lse_N: Tensor, column_lse_N: Tensor | None, positives_N: Tensor) -> Tensor:
    """softplus(lse − s⁺) = −log(e^{s⁺} / (e^{s⁺} + e^{lse})), [N]; with both directions their mean. No cancellation near 0."""
    rows = softplus(row_lse_N - positives_N, threshold=50)
    return rows if column_lse_N is None else (rows + softplus(column_lse_N - positives_N, threshold=50)) / 2


def positives(problem: Problem, offset: int) -> Tensor:
    """s_ij for j = i + offset (mod M), [N]."""
    queries, keys = problem.queries_ND, problem.keys
    if offset == 0:
        return problem.scale * (queries * keys[: len(queries)]).sum(1)
    if problem.keys_MD is None and 2 * offset == len(keys):  # two views: each pair's product once
        return (problem.scale * (queries[:offset] * queries[offset:]).sum(1)).expand(2, -1).reshape(-1)
    return problem.scale * (queries * keys.roll(-offset, 0)[: len(queries)]).sum(1)


def fits(problem: Problem, offset: int) -> bool:
    """Can `Contrast` do it? Bounded, without bias or weights; the pairs are (i, i), or two views of the same things."""
    m = len(problem.keys)
    layout = 2 * offset == m if problem.keys_MD is None else offset == 0 and len(problem.queries_ND) == m
    return layout and problem.bias_M is None and problem.pairs.mask is None and problem.bounded


class Contrast(torch.autograd.Function):
    """`losses` of a small problem."""

    @staticmethod
    def forward(
        ctx: Any, queries_ND: Tensor, keys_MD: Tensor | None, scale: float | Tensor, problem: Problem, offset: int
    ) -> Tensor:
        """softplus(lse − s⁺), [N]."""
        with full_precision(queries_ND):
            exponential = kept.exponents(problem).exp2_()
            lse2 = [exponential.sum(dim).log2_() for dim in ((1, 0) if problem.both else (1,))]
            positive = positives(problem, offset)
            margins = [torch.sub(one * (1 / LOG2E), positive) for one in lse2]
            loss = softplus(margins[0], threshold=50)
            if problem.both:
                loss = loss.add_(softplus(margins[1], threshold=50)).div_(2)
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None)
        ctx.static, ctx.offset = problem.without_operands(), offset
        ctx.kept = exponential, lse2, margins
        return loss

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for the queries, the keys and the scale."""
        problem = ctx.static.with_operands(*ctx.saved_tensors, None)
        need_queries, need_keys, need_scale = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            return *_differentiable_backward(problem, ctx.offset, grad_N, ctx.needs_input_grad[:3]), None, None
        exponential, lse2, margins = ctx.kept
        queries_ND, keys_MD, scale = problem.queries_ND, problem.keys_MD, problem.scale
        with full_precision(queries_ND):
            if problem.both:
                grad_N = grad_N / 2
            pulls = [margin.sigmoid().mul_(grad_N) for margin in margins]  # ∂L/∂lse = −∂L/∂s⁺
            weights = [one.neg().exp2_().mul_(pull) for one, pull in zip(lse2, pulls, strict=True)]
            if problem.pairs.may_be_empty:
                weights = [w.masked_fill_(one == -torch.inf, 0) for w, one in zip(weights, lse2, strict=True)]
            if keys_MD is None:
                gradient = (weights[0][:, None] + weights[0]).mul_(exponential)
                grad_ND = gradient @ queries_ND
                pairs = grad_ND.view(2, ctx.offset, -1)
                both = pulls[0].view(2, -1).sum(0)[:, None]
                pairs.addcmul_(queries_ND.view(2, ctx.offset, -1).flip(0), both, value=-1)
                grad_scale = (queries_ND * grad_ND).sum() / 2 if need_scale else None
                return grad_ND.mul_(scale), None, grad_scale, None, None
            column = weights[0][:, None]
            gradient = exponential * column if not problem.both else (column + weights[1]).mul_(exponential)
            gradient.diagonal().sub_(pulls[0] if not problem.both else pulls[0] + pulls[1])
            grad_ND = gradient @ keys_MD if need_queries or need_scale else None
            grad_scale = (queries_ND * grad_ND).sum() if need_scale and grad_ND is not None else None
            grad_MD = (gradient.T @ queries_ND).mul_(scale) if need_keys else None
            return None if grad_ND is None else grad_ND.mul_(scale), grad_MD, grad_scale, None, None


def _differentiable_backward(
    problem: Problem, offset: int, grad_N: Tensor, needs: tuple[bool, ...]
) -> list[Tensor | None]:
    operands = aliased(problem.queries_ND), aliased(problem.keys_MD), aliased(problem.scale)
    problem = problem.with_operands(*operands, None)
    wanted = [operand for operand, need in zip(operands, needs, strict=True) if need]
    rows, columns = dense.fold(problem)
    loss = losses(rows[0], columns, positives(problem, offset))
    found = iter(torch.autograd.grad(loss, wanted, grad_N, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needs]
