"""A value against the pairs of its row, with gradients computed in the forward pass: 6u instead of 8u, u = N·M·D flops.

For a mean or sum every row that counts receives the same upstream gradient, so that gradients can be computed up to that
factor while a strip of complete rows is in memory, as in torch's `linear_cross_entropy`. If the upstream gradients differ,
the backward pass computes the tiles again.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground import workers
from coulomb.ground.checked import capturing
from coulomb.ground.workers import Task
from coulomb.similarity import policy, streaming
from coulomb.similarity.engine import NO_SECOND_DERIVATIVE, Gradients, Plan, Reduced
from coulomb.similarity.products import add_product, full_precision
from coulomb.similarity.tiles import LOG2E, Problem, Tiles, slices


def contrast(problem: Problem, scale: float | Tensor, positive_N: Tensor, counted_N: Tensor | None = None) -> Tensor:
    """softplus(lse − s⁺), [N], of a problem whose plan is fused; 0 for rows that do not count."""
    operands = problem.queries_ND, problem.keys_MD, scale, problem.bias_M, positive_N
    losses: Tensor = Contrast.apply(*operands, counted_N, problem)
    return losses


class Contrast(torch.autograd.Function):
    """`contrast` for autograd."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """The losses. Keeps the gradients of their sum."""
        queries_ND, keys_MD, scale, bias_M, positive_N, counted_N, problem = inputs
        need_queries, _, need_scale, need_bias, _ = ctx.needs_input_grad[:5]
        with full_precision(queries_ND):
            lse, grad_ND, grad_MD, grad_bias_M = _strips(problem, positive_N, counted_N, need_queries, need_bias)
        margin = lse - positive_N
        grad_scale = (keys_MD * grad_MD).sum() if need_scale else None
        if grad_ND is not None:
            grad_ND.mul_(problem.scale)
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None, bias_M)
        ctx.problem, ctx.rows = problem.without_operands(), (lse, margin, counted_N)
        ctx.gradients = grad_ND, grad_MD.mul_(problem.scale), grad_scale, grad_bias_M
        losses = softplus(margin, threshold=50)
        return losses if counted_N is None else losses.masked_fill_(~counted_N, 0)

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        """The kept gradients times the upstream gradient, or gradients from the tiles, computed again."""
        if torch.is_grad_enabled():
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        lse, margin, counted = ctx.rows
        grad_lse = margin.sigmoid() * grad_N  # ∂L/∂lse = −∂L/∂s⁺
        if counted is not None:
            grad_lse.masked_fill_(~counted, 0)
        expanded = grad_N.stride(0) == 0  # equal for all rows, without reading values
        upstream = grad_N if counted is None or expanded or capturing(grad_N) else grad_N[counted]
        gradients: Gradients
        if expanded or upstream.numel() == 0 or (not capturing(grad_N) and bool((upstream == upstream[0]).all())):
            factor = upstream[0] if upstream.numel() else grad_N.new_zeros(())
            gradients = tuple(None if grad is None else grad * factor for grad in ctx.gradients)  # type: ignore[assignment]
        else:
            problem = ctx.problem.with_operands(*ctx.saved_tensors)
            reduced, plan = Reduced(lse[None]), Plan("tiles")
            gradients = streaming.backward(problem, plan, reduced, grad_lse[None], None, ctx.needs_input_grad[:4])
        return *gradients, -grad_lse, None, None


def _strips(
    problem: Problem, positive_N: Tensor, counted_N: Tensor | None, need_queries: bool, need_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """(lse [N], G K, Gᵀ Q, column sums of G) with G = ∂ Σ_i loss_i / ∂S, one strip of complete rows at a time."""
    tiles = Tiles(problem)
    queries_ND, keys_MD = tiles.queries_ND, tiles.keys_MD
    n, m = problem.pairs.shape
    lse, grad_MD = torch.empty_like(positive_N), torch.zeros_like(keys_MD)
    grad_ND = torch.zeros_like(queries_ND) if need_queries else None
    grad_bias_M = keys_MD.new_zeros(m) if need_bias else None
    columns = [*slices(m, tiles.tile)]
    exponentials: dict[tuple[int, int], Tensor] = {}  # of the strips that threads are at
    weighted: dict[int, tuple[Tensor, Tensor]] = {}

    def sum_rows(rows: slice) -> None:
        """Exponentials of complete rows, their sums, and G K."""
        total = torch.zeros_like(positive_N[rows])
        for cols in columns:
            if problem.pairs.touches(rows, cols):
                exponential = tiles.exponents(rows, cols, keep=True).exp2_()
                total += exponential.sum(1)
                exponentials[rows.start, cols.start] = exponential = tiles.operand(exponential)
                if grad_ND is not None:
                    add_product(grad_ND[rows], exponential, tiles.operands_MD[cols])
        lse[rows] = total.log2().mul_(1 / LOG2E)
        weight = ((lse[rows] - positive_N[rows]).sigmoid_() / total).masked_fill_(total == 0, 0)
        if counted_N is not None:
            weight.masked_fill_(~counted_N[rows], 0)
        weighted[rows.start] = weight, tiles.operand(queries_ND[rows] * weight[:, None])
        if grad_ND is not None:
            grad_ND[rows].mul_(weight[:, None])

    def sum_columns(rows: slice, cols: slice) -> None:
        """Gᵀ Q and the column sums of G."""
        exponential = exponentials.pop((rows.start, cols.start), None)
        if exponential is not None:
            weight, weighted_RD = weighted[rows.start]
            add_product(grad_MD[cols], exponential.T, weighted_RD)
            if grad_bias_M is not None:
                grad_bias_M[cols] += weight @ exponential.to(weight.dtype)

    def tasks() -> Iterator[Task]:
        for rows in strips:
            # A strip's columns wait for its sums; then they can run at the same time, and in order with other strips' columns.
            yield Task(partial(sum_rows, rows), tuple((rows.start, cols.start) for cols in columns))
            for cols in columns:
                yield Task(partial(sum_columns, rows, cols), ((rows.start, cols.start), ("columns", cols.start)))

    strips = [*slices(n, policy.strip_height(m, n, tiles.tile))]
    workers.run(tasks(), len(strips) if tiles.on_cpu else 1)
    return lse, grad_ND, grad_MD, grad_bias_M
