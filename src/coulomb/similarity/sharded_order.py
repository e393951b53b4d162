"""Order statistics when the keys are spread over processes: what each block gives, merged as the blocks come by."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.similarity import order
from coulomb.similarity.problem import Problem
from coulomb.similarity.processes import Shards
from coulomb.similarity.ring import Block
from coulomb.similarity.sharded import SECOND
from coulomb.similarity.sharded_blocks import around, block_of, over_block


@torch.compiler.disable
def topk(problem: Problem, shards: Shards, k: int) -> tuple[Tensor, Tensor]:
    """The k largest over all keys of the group: values [N, k] with gradient, and columns numbered in the order of ranks."""
    operands = problem.queries_ND, problem.keys_MD, problem.scale, problem.bias_M
    values, columns = TopK.apply(*operands, problem, shards, k)
    return values, columns


class TopK(torch.autograd.Function):
    """`order.topk` of each block, and the k largest of what they give."""

    @staticmethod
    def forward(
        ctx: Any,
        queries_ND: Tensor,
        keys_MD: Tensor | None,
        scale: float | Tensor,
        bias_M: Tensor | None,
        problem: Problem,
        shards: Shards,
        k: int,
    ) -> tuple[Tensor, Tensor]:
        """Values and columns."""
        best = [queries_ND.new_full((len(queries_ND), k), -torch.inf)]
        columns = [torch.full(best[0].shape, -1, device=queries_ND.device)]

        def visit(owner: int, block: Block) -> Sequence[Tensor]:
            part = over_block(problem, shards, owner, block)
            if len(part.keys):
                values, where = order.topk(part, min(k, len(part.keys)))
                where = torch.where(where < 0, where, where + shards.start(owner))
                best[0], choice = torch.cat([best[0], values], 1).topk(k, dim=1)
                columns[0] = torch.cat([columns[0], where], 1).gather(1, choice)
            return []

        around(problem, shards, block_of(problem), visit)
        ctx.mark_non_differentiable(columns[0])
        ctx.static, ctx.shards = problem.without_operands(), shards
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None, bias_M, columns[0])
        return best[0], columns[0]

    @staticmethod
    def backward(ctx: Any, grad_Nk: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        """The gradient of each s_ij that was chosen, to its query and its key."""
        if torch.is_grad_enabled():
            raise RuntimeError(SECOND)
        *operands, columns_Nk = ctx.saved_tensors
        problem, shards = ctx.static.with_operands(*operands), ctx.shards
        queries_ND, scale = problem.queries_ND, problem.scale
        grad_ND, grad_scale = torch.zeros_like(queries_ND), queries_ND.new_zeros(())

        def visit(owner: int, block: Block) -> Sequence[Tensor]:
            (block_CD,) = block
            assert block_CD is not None
            start, size = shards.start(owner), len(block_CD)
            i, slot = torch.nonzero((columns_Nk >= start) & (columns_Nk < start + size), as_tuple=True)
            j, grad = columns_Nk[i, slot] - start, grad_Nk[i, slot]
            grad_ND.index_add_(0, i, (scale * grad)[:, None] * block_CD[j])
            grad_scale.add_((grad * (queries_ND[i] * block_CD[j]).sum(1)).sum())
            grad_CD = torch.zeros_like(block_CD).index_add_(0, j, (scale * grad)[:, None] * queries_ND[i])
            return grad_CD, grad.new_zeros(size).index_add_(0, j, grad)

        grad_MD, grad_M = around(problem, shards, [problem.keys], visit)
        grads = (grad_ND + grad_MD, None) if problem.keys_MD is None else (grad_ND, grad_MD)
        grad_scale, grad_bias = (
            None if x is None else y for x, y in ((operands[2], grad_scale), (operands[3], grad_M))
        )
        return *grads, grad_scale, grad_bias, None, None, None


@torch.compiler.disable
@torch.no_grad()
def largest_and_expected(problem: Problem, shards: Shards, lse_N: Tensor) -> tuple[Tensor, Tensor]:
    """`order.largest_and_expected` over all keys of the group, given the lse over all of them."""
    largest_N, expected_N = torch.full_like(lse_N, -torch.inf), torch.zeros_like(lse_N)

    def visit(owner: int, block: Block) -> Sequence[Tensor]:
        largest, expected = order.largest_and_expected(over_block(problem, shards, owner, block), lse_N)
        torch.maximum(largest_N, largest, out=largest_N)
        expected_N.add_(expected)
        return []

    around(problem, shards, block_of(problem), visit)
    return largest_N, expected_N
