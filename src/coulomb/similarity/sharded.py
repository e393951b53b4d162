"""Reductions over keys that are spread over the processes of a group: each process reduces its queries over all keys.

Every process visits the block of keys of every process (`coulomb.similarity.collectives.visit_all`) and reduces it like
any other keys. Results are merged: lse by logaddexp, sums by +, the k largest by another top-k. The backward pass visits
the blocks again: with the merged lse, P_ij = exp(s_ij − lse_i) needs nothing from other blocks. The gradient of a block,
and the reduction of its columns, travel with it and reach its owner summed over all processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._compile import _disable_dynamo

from coulomb.similarity import order
from coulomb.similarity.collectives import Block, Merge, Shards, announced, require_equal, visit_all
from coulomb.similarity.engine import Gradients, Reduced
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.plan import ENGINES, decide
from coulomb.similarity.tiles import LOG2E, UNIT, Problem

SECOND_DERIVATIVE = (
    "a Similarity over several processes has no second derivative, no vmap and no jvp (create_graph=True, torch.func): "
    "leave out group, in a loss by gather=False"
)
DTYPES = (torch.float32, torch.float64)

VisitProblem = Callable[[int, Problem, Block], Sequence[Tensor]]


@_disable_dynamo
@torch.no_grad()
def gather_shards(problem: Problem, group: dist.ProcessGroup, learning: bool, ids: int, guide: int = 0) -> Shards:
    """Exchanges what the processes must know of each other, in one small message.

    Args:
        problem: the queries and keys of this process.
        group: the processes.
        learning: whether gradients are recorded.
        ids: number of ids of each query and key.
        guide: width of the guide; 0 without one.

    Raises:
        ValueError: processes differ in more than the number of their queries and keys.
    """
    queries, keys, bias = problem.queries_ND, problem.keys, problem.bias_M
    equal = {
        "width": queries.shape[1],
        "precision": DTYPES.index(queries.dtype),
        "column_bias": bias is not None,
        "ids per row (0: none)": ids,
        "width of the guide (0: none)": guide,
        "keys that are the queries": problem.keys_MD is None,
        "requires_grad of the queries": learning and queries.requires_grad,
        "requires_grad of the keys": learning and keys.requires_grad,
        "requires_grad of scale": learning and isinstance(problem.scale, Tensor) and problem.scale.requires_grad,
    }
    lengths = [UNIT if problem.unit else _largest(torch.linalg.vector_norm(side, dim=1)) for side in (queries, keys)]
    bounds = [*lengths, abs(float(problem.scale)), 0.0 if bias is None else _largest(bias.abs())]
    numbers = torch.tensor(
        [len(keys), *map(float, equal.values()), *bounds], dtype=torch.float64, device=queries.device
    )
    table = announced(group, "keys", numbers.view(torch.int64)).view(torch.float64)
    for name, column in zip(equal, table[:, 1:].T, strict=False):
        require_equal(name, column)
    query, key, scale, bias_bound = table[:, -len(bounds) :].amax(0).tolist()
    sizes = tuple(int(size) for size in table[:, 0])
    exponent = LOG2E * (scale * query * key + bias_bound)
    return Shards(group, dist.get_rank(group), sizes, queries.shape[1] + guide, exponent)


def _largest(values: Tensor) -> float:
    return float(values.amax()) if len(values) else 0.0


@_disable_dynamo
def reduce_keys(problem: Problem, shards: Shards) -> tuple[Tensor, Tensor | None]:
    """(rows [P, N], columns [M] or None) over all keys, with gradients for all operands of this process."""
    rows, columns = ReduceKeys.apply(problem, shards, *problem.operands)
    return rows, columns


@_disable_dynamo
@torch.no_grad()
def count(pairs: Pairs, shards: Shards) -> Tensor:
    """Number of pairs that count in each row over all keys of the group, [N]."""
    total = pairs.count()
    if _only_own_keys(pairs):
        return total
    if pairs.key_ids is None and pairs.guide is None:
        return total + (shards.total - pairs.shape[1])

    def visit(owner: int, block: Block) -> Sequence[Tensor]:
        if owner != shards.rank:
            total.add_(_pairs_with(pairs, shards.sizes[owner], *block).count())
        return []

    visit_all(shards, _described(pairs), visit)
    return total


@_disable_dynamo
def topk(problem: Problem, shards: Shards, k: int) -> tuple[Tensor, Tensor]:
    """The k largest over all keys of the group: values [N, k] with gradient, and columns numbered in the order of ranks."""
    values, columns = TopK.apply(problem, shards, *problem.operands, k)
    return values, columns


@_disable_dynamo
@torch.no_grad()
def largest_and_expected(problem: Problem, shards: Shards, lse_N: Tensor) -> tuple[Tensor, Tensor]:
    """`order.largest_and_expected` over all keys of the group, given the lse over all of them."""
    largest_N, expected_N = torch.full_like(lse_N, -torch.inf), torch.zeros_like(lse_N)

    def visit(owner: int, part: Problem, _: Block) -> Sequence[Tensor]:
        largest, expected = order.largest_and_expected(part, lse_N)
        torch.maximum(largest_N, largest, out=largest_N)
        expected_N.add_(expected)
        return []

    visit_problems(problem, shards, visit)
    return largest_N, expected_N


class ReduceKeys(torch.autograd.Function):
    """``forward`` and ``backward`` of an `Engine` on each block of keys."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, shards: Shards, *operands: Any) -> tuple[Tensor, Tensor | None]:
        """Rows and columns."""
        merge = torch.logaddexp if problem.reduction == "lse" else torch.add
        rows: list[Tensor] = []

        def visit(owner: int, part: Problem, _: Block) -> Sequence[Tensor]:
            if _needs_no_tiles(part):
                reduced = Reduced(part.sums()[None])
            else:
                reduced = ENGINES[(plan := decide(part)).engine].forward(part, plan)
            rows[:] = [merge(rows[0], reduced.rows_PN) if rows else reduced.rows_PN]
            return [] if reduced.columns_M is None else [reduced.columns_M]

        columns = visit_problems(problem, shards, visit, merge=torch.logaddexp)
        results = rows[0], columns[0] if columns else None
        _save(ctx, problem, shards, *results)
        return results

    @staticmethod
    def backward(ctx: Any, grad_PN: Tensor, grad_M: Tensor | None) -> tuple[Any, ...]:
        """Gradients for the queries, the keys, the scale and the bias."""
        problem, shards, rows, columns = _load(ctx)
        need_queries, need_keys, need_scale, need_bias = ctx.needs_input_grad[2:6]
        keys_are_queries = problem.keys_MD is None
        need_keys = need_queries if keys_are_queries else need_keys
        needs = need_queries, need_keys, need_scale, need_bias
        grad_ND = torch.zeros_like(problem.queries_ND) if need_queries else None
        grad_scale = torch.zeros_like(problem.scale) if need_scale else None

        def visit(owner: int, part: Problem, extra: Block) -> Sequence[Tensor]:
            if _needs_no_tiles(part):
                grads = _sums_gradients(part, grad_PN)
            else:
                plan, reduced = decide(part), Reduced(rows, extra[0])
                grads = ENGINES[plan.engine].backward(part, plan, reduced, grad_PN, extra[1], needs)
            # If the keys are the queries, the gradient of this process's block is complete and counts as its keys' gradient.
            complete = part.keys_MD is None
            if grad_ND is not None and grads.queries_ND is not None and not complete:
                grad_ND.add_(grads.queries_ND)
            if grad_scale is not None and grads.scale is not None:
                grad_scale.add_(grads.scale)
            results = (need_keys, grads.queries_ND if complete else grads.keys_MD), (need_bias, grads.bias_M)
            return [grad for need, grad in results if need and grad is not None]

        extra = [columns, grad_M if columns is not None else None]
        returned = iter(visit_problems(problem, shards, visit, extra))
        grad_MD, grad_bias = next(returned) if need_keys else None, next(returned) if need_bias else None
        if keys_are_queries and grad_ND is not None and grad_MD is not None:
            grad_ND, grad_MD = grad_ND.add_(grad_MD), None
        return None, None, grad_ND, grad_MD, grad_scale, grad_bias


class TopK(torch.autograd.Function):
    """`order.topk` of each block, and the k largest of the results."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, shards: Shards, *operands: Any) -> tuple[Tensor, Tensor]:
        """Values and columns."""
        queries_ND, k = problem.queries_ND, operands[-1]
        best = queries_ND.new_full((len(queries_ND), k), -torch.inf)
        columns = torch.full(best.shape, -1, device=queries_ND.device)

        def visit(owner: int, part: Problem, _: Block) -> Sequence[Tensor]:
            nonlocal best, columns
            if len(part.keys):
                values, where = order.topk(part, min(k, len(part.keys)))
                where = torch.where(where < 0, where, where + shards.offset(owner))
                best, choice = torch.cat([best, values], 1).topk(k, dim=1)
                columns = torch.cat([columns, where], 1).gather(1, choice)
            return []

        visit_problems(problem, shards, visit)
        ctx.mark_non_differentiable(columns)
        _save(ctx, problem, shards, columns)
        return best, columns

    @staticmethod
    def backward(ctx: Any, grad_Nk: Tensor, _: Any) -> tuple[Any, ...]:
        """The gradient of each chosen s_ij, for its query and its key."""
        problem, shards, columns_Nk = _load(ctx)
        queries_ND, scale = problem.queries_ND, problem.scale
        grad_ND, grad_scale = torch.zeros_like(queries_ND), queries_ND.new_zeros(())

        def visit(owner: int, part: Problem, _: Block) -> Sequence[Tensor]:
            keys_CD, offset = part.keys, shards.offset(owner)
            i, slot = torch.nonzero((columns_Nk >= offset) & (columns_Nk < offset + len(keys_CD)), as_tuple=True)
            j, grad = columns_Nk[i, slot] - offset, grad_Nk[i, slot]
            grad_ND.index_add_(0, i, (scale * grad)[:, None] * keys_CD[j])
            grad_scale.add_((grad * (queries_ND[i] * keys_CD[j]).sum(1)).sum())
            grad_CD = torch.zeros_like(keys_CD).index_add_(0, j, (scale * grad)[:, None] * queries_ND[i])
            return grad_CD, grad.new_zeros(len(keys_CD)).index_add_(0, j, grad)

        grad_MD, grad_bias = visit_problems(problem, shards, visit)
        grads = (grad_ND + grad_MD, None) if problem.keys_MD is None else (grad_ND, grad_MD)
        needs = ctx.needs_input_grad
        return None, None, *grads, grad_scale if needs[4] else None, grad_bias if needs[5] else None, None


def _save(ctx: Any, problem: Problem, shards: Shards, *results: Tensor | None) -> None:
    ctx.static, ctx.shards = problem.without_operands(), shards
    ctx.save_for_backward(*(x if isinstance(x, Tensor) else None for x in problem.operands), *results)


def _load(ctx: Any) -> tuple[Any, ...]:
    """(problem, shards, results) as they were saved."""
    if torch.is_grad_enabled():
        raise RuntimeError(SECOND_DERIVATIVE)
    saved = ctx.saved_tensors
    return ctx.static.with_operands(*saved[:4]), ctx.shards, *saved[4:]


def visit_problems(
    problem: Problem, shards: Shards, visit: VisitProblem, extra: Block = (), merge: Merge = torch.add
) -> list[Tensor]:
    """Calls ``visit(owner, this process's queries over the keys of owner, extra tensors of owner)`` for every process.

    Returns the merged results for this process's keys. No other keys are visited where no others count.
    """

    def visit_block(owner: int, block: Block) -> Sequence[Tensor]:
        keys_MD, bias_M, key_ids, guide_ME, *others = block
        part = replace(problem, exponent=shards.exponent)
        if owner != shards.rank:
            assert keys_MD is not None
            pairs = _pairs_with(problem.pairs, len(keys_MD), key_ids, guide_ME)
            part = replace(part, keys_MD=keys_MD, bias_M=bias_M, pairs=pairs)
        return visit(owner, part, others)

    block = [problem.keys, problem.bias_M, *_described(problem.pairs), *extra]
    if _only_own_keys(problem.pairs):
        return list(visit_block(shards.rank, block))
    return list(visit_all(shards, block, visit_block, merge))


def _described(pairs: Pairs) -> Block:
    """What tells other processes which pairs count: the ids of the keys, and the keys of the guide."""
    return pairs.key_ids, None if pairs.guide is None else pairs.guide.keys


def _pairs_with(pairs: Pairs, keys: int, key_ids: Tensor | None, guide_ME: Tensor | None) -> Pairs:
    """The pairs that count of this process's queries with the keys of another process, selected by ids and guide.

    "Self" and `instances` refer to rows of one process.
    """
    shape = pairs.shape[0], keys
    guide = None if pairs.guide is None or guide_ME is None else replace(pairs.guide, keys_ME=guide_ME)
    if key_ids is None:
        return Pairs(shape, pairs.device, guide=guide)
    return Pairs(shape, pairs.device, same=pairs.same, query_ids=pairs.query_ids, key_ids=key_ids, guide=guide)


def _only_own_keys(pairs: Pairs) -> bool:
    """True if no key of another process counts."""
    return pairs.same is True and pairs.key_ids is None


def _needs_no_tiles(problem: Problem) -> bool:
    """True for sums over named pairs, which follow from sums of keys."""
    return problem.reduction == "sum" and problem.at_least_N is None and problem.pairs.by_class


def _sums_gradients(problem: Problem, grad_PN: Tensor) -> Gradients:
    """The gradients of `Problem.sums`, by autograd."""
    with torch.enable_grad():
        leaves: list[Any] = [x.detach().requires_grad_() if isinstance(x, Tensor) else None for x in problem.operands]
        value = problem.with_operands(*leaves).sums()
    tensors = [leaf for leaf in leaves if leaf is not None]
    grads = iter(torch.autograd.grad(value, tensors, grad_PN[0], materialize_grads=True))
    return Gradients(*(None if leaf is None else next(grads) for leaf in leaves))
