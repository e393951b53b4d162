"""One value against the pairs of its row, with the gradients made in the forward pass: 6u instead of 8u, u = N·M·D flops.

A loss that is a mean or a sum asks the same of every row that counts, so that its gradients are known before anybody asks,
up to one factor: a strip of whole rows is at hand when its sums are complete, and need not be computed again (as in torch's
`linear_cross_entropy`). Where rows are asked for different things after all, the backward pass recomputes the tiles.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.similarity import products, streaming
from coulomb.similarity.graph import SECOND
from coulomb.similarity.problem import LOG2E, Problem, Tiles, blocks, full_precision

STRIP = 2**22  # elements of a strip: 16 MiB in fp32; more where the keys themselves are longer than that
LEAST_ROWS = 128  # of a strip: below, the products cost more than is saved


def fits(problem: Problem) -> bool:
    """One direction, keys that learn, no maximum needed, and rows that a strip has room for."""
    keys_MD = problem.keys_MD
    if keys_MD is None or problem.both or problem.pairs.mask is not None:
        return False
    if not (torch.is_grad_enabled() and keys_MD.requires_grad):
        return False
    return LEAST_ROWS * len(keys_MD) <= max(STRIP, keys_MD.numel()) and problem.bounded


def against(problem: Problem, scale: float | Tensor, own_N: Tensor, counted_N: Tensor | None = None) -> Tensor:
    """softplus(lse − own), [N], of a problem that `fits`; 0 for rows that are not counted."""
    operands = problem.queries_ND, problem.keys_MD, scale, problem.bias_M, own_N
    losses: Tensor = Ahead.apply(*operands, counted_N, problem)
    return losses


class Ahead(torch.autograd.Function):
    """`against` for autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        queries_ND: Tensor,
        keys_MD: Tensor,
        scale: float | Tensor,
        bias_M: Tensor | None,
        own_N: Tensor,
        counted_N: Tensor | None,
        problem: Problem,
    ) -> Tensor:
        """The losses; gradients of their sum are kept."""
        need_queries, _, need_scale, need_bias, _ = ctx.needs_input_grad[:5]
        with full_precision(queries_ND):
            lse, grad_ND, grad_MD, grad_bias = _fold(problem, own_N, counted_N, need_queries, need_bias)
        margin = lse - own_N
        grad_scale = (keys_MD * grad_MD).sum() if need_scale else None
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None, bias_M)
        ctx.static = problem.without_operands()
        if grad_ND is not None:
            grad_ND.mul_(problem.scale)
        ctx.kept = lse, margin, counted_N, grad_ND, grad_MD.mul_(problem.scale), grad_scale, grad_bias
        losses = softplus(margin, threshold=50)
        return losses if counted_N is None else losses.masked_fill_(~counted_N, 0)

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        """The kept gradients times what every row is asked for; recomputed where that is not one number."""
        if torch.is_grad_enabled():
            raise RuntimeError(SECOND)
        lse, margin, counted, *ahead = ctx.kept
        pull = margin.sigmoid() * grad_N  # ∂L/∂lse = −∂L/∂own
        if counted is not None:
            pull.masked_fill_(~counted, 0)
        asked = grad_N if counted is None else grad_N[counted]
        if asked.numel() == 0 or grad_N.stride(0) == 0 or bool((asked == asked[0]).all()):
            factor = asked[0] if asked.numel() else grad_N.new_zeros(())
            found = [None if grad is None else grad * factor for grad in ahead]
        else:
            problem = ctx.static.with_operands(*ctx.saved_tensors)
            needs = ctx.needs_input_grad[:4]
            grads = streaming.backward(problem, streaming.Folded(lse[None]), pull[None], None, needs)
            found = [grads.queries_ND, grads.keys_MD, grads.scale, grads.bias_M]
        return *found, -pull, None, None


def _fold(
    problem: Problem, own_N: Tensor, counted_N: Tensor | None, need_queries: bool, need_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """(lse [N], G K, Gᵀ Q, column sums of G) with G = ∂ Σ_i loss_i / ∂S, a strip of rows at a time."""
    tiles = Tiles(problem)
    queries_ND, keys_MD = tiles.queries_ND, tiles.keys_MD
    n, m = problem.pairs.shape
    lse, grad_MD = torch.empty_like(own_N), torch.zeros_like(keys_MD)
    grad_ND = torch.zeros_like(queries_ND) if need_queries else None
    grad_bias = keys_MD.new_zeros(m) if need_bias else None
    height = min(tiles.rows, max(LEAST_ROWS, STRIP // max(1, m)))
    strip = queries_ND.new_empty(min(height, n) * m)
    for rows in blocks(n, height):
        kept, start = [], 0
        total = torch.zeros_like(own_N[rows])
        for cols in tiles.col_blocks(rows):
            tile = tiles.exponents(rows, cols)
            room = strip[start : start + tile.numel()].view_as(tile)
            torch.exp2(tile, out=room)
            start += tile.numel()
            total += room.sum(1)
            room = tiles.operand(room)
            if grad_ND is not None:
                products.add_product(grad_ND[rows], room, tiles.factors_MD[cols])
            kept.append((cols, room))
        lse[rows] = total.log2().mul_(1 / LOG2E)
        pull = (lse[rows] - own_N[rows]).sigmoid_()
        weight = (pull / total).masked_fill_(total == 0, 0)
        if counted_N is not None:
            weight.masked_fill_(~counted_N[rows], 0)
        weighted_DR = tiles.operand(queries_ND[rows] * weight[:, None]).T.contiguous()
        for cols, room in kept:
            products.add_transposed_product(grad_MD[cols], room, weighted_DR)
            if grad_bias is not None:
                grad_bias[cols] += weight @ room.to(weight.dtype)
        if grad_ND is not None:
            grad_ND[rows] *= weight[:, None]
    return lse, grad_ND, grad_MD, grad_bias
