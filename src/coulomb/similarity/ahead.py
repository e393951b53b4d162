"""The positive against the rest, with the gradients made in the forward pass: 6u instead of 8u, u = N·M·D flops.

A loss that is a mean or a sum asks the same of every row, so that its gradients are known before anybody asks, up to one
factor: a strip of whole rows is at hand when its sums are complete, and need not be computed again (as in torch's
`linear_cross_entropy`). Where rows are asked for different things after all, the backward pass recomputes the tiles.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.similarity import products, streaming
from coulomb.similarity.contrast import fits as is_paired
from coulomb.similarity.contrast import positives
from coulomb.similarity.graph import SECOND
from coulomb.similarity.problem import LOG2E, Problem, Tiles, blocks, full_precision

STRIP = 2**22  # elements of a strip: 16 MiB in fp32
LEAST_ROWS = 128  # of a strip: below, the products cost more than is saved


def fits(problem: Problem, offset: int) -> bool:
    """Pairs (i, i) of two different sides that both learn, one direction, and rows that a strip has room for."""
    keys_MD = problem.keys_MD
    if keys_MD is None or problem.both or not (torch.is_grad_enabled() and problem.queries_ND.requires_grad):
        return False
    return keys_MD.requires_grad and len(keys_MD) * LEAST_ROWS <= STRIP and is_paired(problem, offset)


def contrast(problem: Problem, scale: float | Tensor) -> Tensor:
    """softplus(lse − s⁺), [N], of a problem that `fits`."""
    losses: Tensor = ContrastAhead.apply(problem.queries_ND, problem.keys_MD, scale, problem)
    return losses


class ContrastAhead(torch.autograd.Function):
    """`contrast` for autograd."""

    @staticmethod
    def forward(ctx: Any, queries_ND: Tensor, keys_MD: Tensor, scale: float | Tensor, problem: Problem) -> Tensor:
        """The losses; gradients of their sum are kept."""
        with full_precision(queries_ND):
            lse, grad_ND, grad_MD = _fold(problem)
        margin = lse - positives(problem, 0)
        grad_scale = (queries_ND * grad_ND).sum() if isinstance(scale, Tensor) else None
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None)
        ctx.static = problem.without_operands()
        ctx.kept = lse, margin, grad_ND.mul_(problem.scale), grad_MD.mul_(problem.scale), grad_scale
        return softplus(margin, threshold=50)

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        """The kept gradients times what every row is asked for; recomputed where that is not one number."""
        if torch.is_grad_enabled():
            raise RuntimeError(SECOND)
        lse, margin, *ahead = ctx.kept
        needs = ctx.needs_input_grad[:3]
        if grad_N.stride(0) == 0 or bool((grad_N == grad_N[0]).all()):
            found = [
                grad * grad_N[0] if need and grad is not None else None for grad, need in zip(ahead, needs, strict=True)
            ]
            return *found, None
        problem = ctx.static.with_operands(*ctx.saved_tensors, None)
        pull = margin.sigmoid() * grad_N  # ∂L/∂lse = −∂L/∂s⁺
        queries_ND, keys_MD = problem.queries_ND, problem.keys
        grads = streaming.backward(problem, streaming.Folded(lse[None]), pull[None], None, (*needs, False))
        pull = pull[:, None]
        grad_ND = None if grads.queries_ND is None else grads.queries_ND.addcmul_(keys_MD, pull * -problem.scale)
        grad_MD = None if grads.keys_MD is None else grads.keys_MD.addcmul_(queries_ND, pull * -problem.scale)
        grad_scale = None if grads.scale is None else grads.scale - (pull * queries_ND * keys_MD).sum()
        return grad_ND, grad_MD, grad_scale, None


def _fold(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """(lse [N], G K, Gᵀ Q) with G = ∂ Σ_i loss_i / ∂S, a strip of rows at a time."""
    tiles = Tiles(problem)
    queries_ND, keys_MD = tiles.queries_ND, tiles.keys_MD
    n, m = problem.pairs.shape
    positive = positives(problem, 0)
    lse, grad_ND, grad_MD = torch.empty_like(positive), torch.zeros_like(queries_ND), torch.zeros_like(keys_MD)
    height = min(tiles.rows, max(LEAST_ROWS, STRIP // m))
    strip = queries_ND.new_empty(height * m)
    for rows in blocks(n, height):
        kept, start = [], 0
        total = torch.zeros_like(positive[rows])
        for cols in tiles.col_blocks(rows):
            tile = tiles.exponents(rows, cols)
            room = strip[start : start + tile.numel()].view_as(tile)
            torch.exp2(tile, out=room)
            start += tile.numel()
            total += room.sum(1)
            room = tiles.operand(room)
            products.add_product(grad_ND[rows], room, tiles.factors_MD[cols])
            kept.append((cols, room))
        lse[rows] = total.log2().mul_(1 / LOG2E)
        pull = (lse[rows] - positive[rows]).sigmoid_()[:, None]
        weight = (pull / total[:, None]).masked_fill_(total[:, None] == 0, 0)
        weighted_DR = tiles.operand(queries_ND[rows] * weight).T.contiguous()
        for cols, room in kept:
            products.add_transposed_product(grad_MD[cols], room, weighted_DR)
        grad_ND[rows] = (grad_ND[rows] * weight).addcmul_(keys_MD[rows], pull, value=-1)
        grad_MD[rows].addcmul_(queries_ND[rows], pull, value=-1)
    return lse, grad_ND, grad_MD
