"""The folds when the keys are spread over the processes of a group: each process folds its queries over all keys.

Blocks of keys come by (see `coulomb.similarity.ring`) and each is folded like any other keys; lse merge by logaddexp,
sums by +, the k largest by taking the k largest again. The backward pass lets the blocks come by once more: with the
merged lse, P_ij = exp(s_ij − lse_i) needs nothing of the other blocks. The gradient of a block, and the columns' results,
travel with it and come home summed over all processes with weight one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from coulomb.similarity import streaming
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.problem import Problem
from coulomb.similarity.processes import Shards, gather_rows
from coulomb.similarity.ring import Block, pass_around
from coulomb.similarity.sharded_blocks import around, block_of, over_block, stays_here
from coulomb.similarity.streaming import Folded, Gradients
from coulomb.similarity.sums import summed

SECOND = (
    "a Similarity over several processes has no second derivative, no vmap and no jvp (create_graph=True, torch.func): "
    "leave out group, in a loss by gather=False"
)


@torch.compiler.disable
def fold(problem: Problem, shards: Shards) -> tuple[Tensor, Tensor | None]:
    """(rows [P, N], columns [M] or None) over all keys, with gradients for queries, own keys, scale and own bias."""
    rows, columns = Fold.apply(problem.queries_ND, problem.keys_MD, problem.scale, problem.bias_M, problem, shards)
    return rows, columns


class Fold(torch.autograd.Function):
    """Each block of keys by `streaming.forward` and `streaming.backward`."""

    @staticmethod
    def forward(
        ctx: Any,
        queries_ND: Tensor,
        keys_MD: Tensor | None,
        scale: float | Tensor,
        bias_M: Tensor | None,
        problem: Problem,
        shards: Shards,
    ) -> tuple[Tensor, Tensor | None]:
        """Rows and columns."""
        merge = torch.add if problem.linear else torch.logaddexp
        rows: list[Tensor] = []

        def visit(owner: int, block: Block) -> Sequence[Tensor]:
            part = over_block(problem, shards, owner, block)
            folded = Folded(_sums(part)) if _by_sums(part) else streaming.forward(part)
            rows[:] = [merge(rows[0], folded.rows_PN) if rows else folded.rows_PN]
            return [] if folded.columns_M is None else [folded.columns_M]

        columns = around(problem, shards, block_of(problem), visit, torch.logaddexp)
        found = rows[0], columns[0] if columns else None
        ctx.static, ctx.shards = problem.without_operands(), shards
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None, bias_M, *found)
        return found

    @staticmethod
    def backward(ctx: Any, grad_PN: Tensor, grad_M: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients for the queries, the keys, the scale and the bias."""
        if torch.is_grad_enabled():
            raise RuntimeError(SECOND)
        *operands, rows, columns = ctx.saved_tensors
        problem = ctx.static.with_operands(*operands)
        shards, needs = ctx.shards, ctx.needs_input_grad[:4]
        itself = problem.keys_MD is None
        need_keys, need_bias = needs[0] if itself else needs[1], needs[3]
        mine: list[Tensor | None] = [None, None]  # of the queries as queries, of the scale

        def visit(owner: int, block: Block) -> Sequence[Tensor]:
            *_, columns_M, block_grad_M = block
            part = over_block(problem, shards, owner, block)
            wanted = needs[0], need_keys, needs[2], need_bias
            if _by_sums(part):
                grads = _sums_backward(part, grad_PN, wanted)
            else:
                grads = streaming.backward(part, Folded(rows, columns_M), grad_PN, block_grad_M, wanted)
            # Keys that are the queries: the own block's gradient has both parts in one, and is kept at home.
            own = itself and part.keys_MD is None
            mine[0], mine[1] = _sum(mine[0], None if own else grads.queries_ND), _sum(mine[1], grads.scale)
            left = (need_keys, grads.queries_ND if own else grads.keys_MD), (need_bias, grads.bias_M)
            return [grad for need, grad in left if need and grad is not None]

        block = [*block_of(problem), columns, grad_M if columns is not None else None]
        home = around(problem, shards, block, visit)
        grad_bias = home.pop() if need_bias else None
        grad_keys = home.pop() if need_keys else None
        if itself:
            return _sum(grad_keys, mine[0]), None, mine[1], grad_bias, None, None
        return mine[0], grad_keys, mine[1], grad_bias, None, None


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _by_sums(problem: Problem) -> bool:
    return problem.linear and problem.at_least_N is None


def _sums(problem: Problem) -> Tensor:
    return summed(problem.queries_ND, problem.keys, problem.scale, problem.bias_M, problem.pairs)[None]


def _sums_backward(problem: Problem, grad_PN: Tensor, needs: tuple[bool, ...]) -> Gradients:
    """The gradients of `_sums`, which is plain torch."""
    operands = problem.queries_ND, problem.keys_MD, problem.scale, problem.bias_M
    needed = [need and isinstance(x, Tensor) for need, x in zip(needs, operands, strict=True)]
    leaves: list[Any] = [x.detach() if isinstance(x, Tensor) else None for x in operands]
    wanted = [leaf.requires_grad_() for need, leaf in zip(needed, leaves, strict=True) if need]
    with torch.enable_grad():
        value = _sums(problem.with_operands(*leaves))
    found = iter(torch.autograd.grad(value, wanted, grad_PN, materialize_grads=True))
    return Gradients(*(next(found) if need else None for need in needed))


@torch.compiler.disable
def sums(problem: Problem, shards: Shards) -> Tensor:
    """Σ_j s_ij over all keys of the group, [N]. Without ids only each process's sum of keys travels."""
    if problem.pairs.key_ids is not None:
        return fold(replace(problem, linear=True), shards)[0][0]
    here = _sums(problem)[0]
    if stays_here(problem.pairs):
        return here
    keys, queries = problem.keys, problem.scale * problem.queries_ND
    if problem.bias_M is not None:  # s_ij = (scale·q_i, 1) · (k_j, b_j)
        queries = torch.cat([queries, queries.new_ones(len(queries), 1)], 1)
        keys = torch.cat([keys, problem.bias_M[:, None]], 1)
    others = torch.arange(shards.world, device=keys.device) != shards.rank
    return here + queries @ gather_rows(keys.sum(0, keepdim=True), shards.group)[others].sum(0)


@torch.compiler.disable
@torch.no_grad()
def count(pairs: Pairs, shards: Shards) -> Tensor:
    """Pairs that count in each row over all keys of the group, [N]."""
    total = pairs.count()
    if stays_here(pairs):
        return total
    if pairs.key_ids is None:
        return total + (shards.total - pairs.shape[1])

    def visit(owner: int, block: Block) -> Sequence[Tensor]:
        (ids,) = block
        assert ids is not None
        if owner != shards.rank:
            shape = pairs.shape[0], len(ids)
            part = Pairs(shape, pairs.device, same=pairs.same, query_ids=pairs.query_ids, key_ids=ids)
            total.add_(part.count())
        return []

    pass_around(shards, [pairs.key_ids], visit)
    return total
