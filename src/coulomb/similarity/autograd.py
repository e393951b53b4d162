"""The reductions as differentiable operations: for eager autograd, and as operators that `torch.compile` does not trace."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.checked import abstract
from coulomb.similarity import dense, order
from coulomb.similarity.engine import NO_SECOND_DERIVATIVE, Needs, Plan, Reduced
from coulomb.similarity.guide import Guide
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.plan import ENGINES, attends, decide, learning
from coulomb.similarity.tiles import Problem


def reduce(problem: Problem, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """(rows [P, N], columns [M] or None) with gradients of queries, keys, scale and bias."""
    if plan.engine == "dense":
        return dense.reduce(problem)
    if plan.engine == "operator":
        rows, columns, *_ = torch.ops.coulomb.reduce(*_flattened(problem), learning(problem))
    else:
        rows, columns = Reduce.apply(*problem.operands, problem, plan)
    return rows, columns if problem.both else None


class Reduce(torch.autograd.Function):
    """An `Engine` for eager autograd."""

    # forward takes ctx instead of having a setup_context: torch inspects the signature of the latter in every call, which
    # takes longer than a small problem does.
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Rows and columns."""
        queries_ND, keys_MD, scale, bias_M, problem, plan = inputs
        reduced = ENGINES[plan.engine].forward(problem, plan)
        ctx.set_materialize_grads(False)
        tensor_scale = scale if isinstance(scale, Tensor) else None
        ctx.save_for_backward(queries_ND, keys_MD, tensor_scale, bias_M, reduced.rows_PN, reduced.columns_M)
        ctx.attended_ND, ctx.cached, ctx.cache = reduced.attended_ND, reduced.cached, reduced.cache
        ctx.problem, ctx.plan = problem.without_operands(), plan
        return reduced.rows_PN, reduced.columns_M

    @staticmethod
    def backward(ctx: Any, grad_PN: Tensor | None, grad_M: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the queries, the keys, the scale and the bias."""
        *operands, rows_PN, columns_M = ctx.saved_tensors
        problem, plan = ctx.problem.with_operands(*operands), ctx.plan
        needs = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():
            if plan.engine != "stored":
                raise RuntimeError(NO_SECOND_DERIVATIVE)
            return *_differentiable_backward(problem, grad_PN, grad_M, needs), None, None
        grad_PN = torch.zeros_like(rows_PN) if grad_PN is None else grad_PN
        grad_M = torch.zeros_like(columns_M) if problem.both and grad_M is None else grad_M
        reduced = Reduced(rows_PN, columns_M, ctx.attended_ND, ctx.cached, ctx.cache)
        return *ENGINES[plan.engine].backward(problem, plan, reduced, grad_PN, grad_M, needs), None, None


def _differentiable_backward(
    problem: Problem, grad_PN: Tensor | None, grad_M: Tensor | None, needs: Needs
) -> list[Tensor | None]:
    """The gradients as functions that can be differentiated, from the stored matrix."""
    # As new nodes: queries may be computed from keys, whose gradient must not include theirs.
    operands = [one.view_as(one) if isinstance(one, Tensor) else one for one in problem.operands]
    problem = problem.with_operands(*operands)  # type: ignore[arg-type]
    rows, columns = dense.reduce(problem)
    pairs = [(rows, grad_PN), (columns, grad_M)]
    values, grads = zip(*[(v, g) for v, g in pairs if v is not None and g is not None], strict=True)
    wanted: list[Any] = [one for one, need in zip(operands, needs, strict=True) if need]
    gradients = iter(torch.autograd.grad(values, wanted, grads, create_graph=True, allow_unused=True))
    return [next(gradients) if need else None for need in needs]


# A problem as the arguments of an operator. The first TENSORS are tensors.
PROBLEM = (
    "Tensor queries, Tensor? keys, Tensor scale, Tensor? bias, Tensor? query_ids, Tensor? key_ids, Tensor? mask, "
    "Tensor? guide_queries, Tensor? guide_keys, Tensor? guide_limit, Tensor? at_least, float[] powers, bool drop_self, "
    "bool? same, int? instances, bool weighs, str reduction, bool both, bool unit, int tile, ScalarType? half, str backend"
)
TENSORS = 11


def _flattened(problem: Problem) -> tuple[Any, ...]:
    pairs = problem.pairs
    scale = torch.as_tensor(problem.scale, dtype=problem.queries_ND.dtype, device=problem.queries_ND.device)
    tensors = problem.queries_ND, problem.keys_MD, scale, problem.bias_M, pairs.query_ids, pairs.key_ids, pairs.mask
    guide = (None,) * 3 if (given := pairs.guide) is None else (given.queries_NE, given.keys_ME, given.limit_N)
    weighs = given is not None and given.weighs
    kinds = list(problem.powers), pairs.drop_self, pairs.same, pairs.instances, weighs, problem.reduction, problem.both
    return *tensors, *guide, problem.at_least_N, *kinds, problem.unit, problem.tile, problem.half, problem.backend


def _unflattened(flat: Sequence[Any]) -> Problem:
    queries_ND, keys_MD, scale, bias_M, query_ids, key_ids, mask, *others = flat
    guide_queries, guide_keys, limit_N, at_least_N, *kinds = others
    powers, drop_self, same, instances, weighs, reduction, both, unit, tile, half, backend = kinds
    shape = len(queries_ND), len(queries_ND if keys_MD is None else keys_MD)
    guide = None if limit_N is None else Guide(guide_queries, guide_keys, limit_N, weighs)
    pairs = Pairs(shape, queries_ND.device, drop_self, same, query_ids, key_ids, instances, mask, guide)
    return Problem(
        queries_ND,
        keys_MD,
        scale,
        bias_M,
        pairs,
        reduction=reduction,
        powers=tuple(powers),
        both=both,
        at_least_N=at_least_N,
        unit=unit,
        tile=tile,
        half=half,
        backend=backend,
    )


@torch.library.custom_op(
    "coulomb::reduce",
    mutates_args=(),
    schema=f"({PROBLEM}, bool[] needs) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _reduce(*inputs: Any) -> tuple[Tensor, ...]:
    """Rows, columns, attended, cached; empty where not computed."""
    *flat, needs = inputs
    problem = _unflattened(flat)
    plan = decide(problem, needs)._replace(learning=False, cached=0)  # results are tensors: no tiles are kept
    reduced = ENGINES[plan.engine].forward(problem, plan)
    cached = reduced.cached[0] if plan.engine == "stored" else None
    results = reduced.rows_PN, reduced.columns_M, reduced.attended_ND, cached
    return tuple(problem.queries_ND.new_empty(0) if result is None else result for result in results)


@_reduce.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    *flat, needs = inputs
    problem = _unflattened(flat)
    new, (n, m), powers = problem.queries_ND.new_empty, problem.pairs.shape, len(problem.powers)
    attended = problem.queries_ND.shape if attends(problem, needs) else 0
    cached = (powers, n, m) if problem.backend == "stored" else 0
    return new(powers, n), new(m if problem.both else 0), new(attended), new(cached)


@torch.library.custom_op(
    "coulomb::reduce_backward",
    mutates_args=(),
    schema=f"({PROBLEM}, Tensor rows, Tensor columns, Tensor attended, Tensor cached, Tensor grad_rows, "
    "Tensor grad_columns, bool[] needs) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _reduce_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """Gradients of queries, keys, scale and bias; empty where not needed."""
    *flat, rows_PN, columns_M, attended_ND, cached, grad_PN, grad_M, needs = inputs
    problem = _unflattened(flat)
    plan = decide(problem, needs)
    columns, grad_M = (columns_M, grad_M) if problem.both else (None, None)
    attended = attended_ND if attended_ND.numel() else None
    reduced = Reduced(rows_PN, columns, attended, [cached] if plan.engine == "stored" else ())
    gradients = ENGINES[plan.engine].backward(problem, plan, reduced, grad_PN, grad_M, needs)
    new = problem.queries_ND.new_empty
    return tuple(
        grad.contiguous() if need and grad is not None else new(0) for grad, need in zip(gradients, needs, strict=True)
    )


@_reduce_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    *operands, needs = *inputs[:4], inputs[-1]
    new = inputs[0].new_empty
    return tuple(new(x.shape if need and x is not None else 0) for x, need in zip(operands, needs, strict=True))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *ctx.kinds, _ = inputs[TENSORS:]
    ctx.save_for_backward(*inputs[:TENSORS], *output)


def _backward(ctx: Any, grad_PN: Tensor, grad_M: Tensor, *_: Any) -> tuple[Any, ...]:
    tensors, results = ctx.saved_tensors[:TENSORS], ctx.saved_tensors[TENSORS:]
    needs = list(ctx.needs_input_grad[:4])
    grads = torch.ops.coulomb.reduce_backward(*tensors, *ctx.kinds, *results, grad_PN, grad_M, needs)
    others = [None] * (TENSORS - 4 + len(ctx.kinds) + 1)
    return *(grad if need else None for grad, need in zip(grads, needs, strict=True)), *others


_reduce.register_autograd(_backward, setup_context=_setup)


# Order statistics, which have no gradients: a compiler would trace every tile.
@torch.library.custom_op("coulomb::topk", mutates_args=(), schema=f"({PROBLEM}, int k) -> (Tensor, Tensor)")
def _topk(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Values and columns."""
    *flat, k = inputs
    return order.topk(_unflattened(flat), k)


@_topk.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor]:
    queries_ND, k = inputs[0], inputs[-1]
    return queries_ND.new_empty(len(queries_ND), k), queries_ND.new_empty(len(queries_ND), k, dtype=torch.long)


@torch.library.custom_op(
    "coulomb::largest_and_expected", mutates_args=(), schema=f"({PROBLEM}, Tensor lse) -> (Tensor, Tensor)"
)
def _largest_and_expected(*inputs: Any) -> tuple[Tensor, Tensor]:
    """The largest and the expected similarity of each row."""
    *flat, lse_N = inputs
    return order.largest_and_expected(_unflattened(flat), lse_N)


@_largest_and_expected.register_fake
def _(*inputs: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(inputs[-1]), torch.empty_like(inputs[-1])


@torch.no_grad()
def topk(problem: Problem, k: int) -> tuple[Tensor, Tensor]:
    """`order.topk`, as an operator for compilers."""
    if torch.compiler.is_compiling() or abstract(problem.queries_ND):
        values, columns = torch.ops.coulomb.topk(*_flattened(problem), k)
        return values, columns
    return order.topk(problem, k)


@torch.no_grad()
def largest_and_expected(problem: Problem, lse_N: Tensor) -> tuple[Tensor, Tensor]:
    """`order.largest_and_expected`, as an operator for compilers."""
    if torch.compiler.is_compiling() or abstract(problem.queries_ND):
        largest, expected = torch.ops.coulomb.largest_and_expected(*_flattened(problem), lse_N)
        return largest, expected
    return order.largest_and_expected(problem, lse_N)
