"""The reductions as differentiable operations: for eager autograd, and as operators that `torch.compile` does not trace."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.checked import abstract
from coulomb.similarity import attention, dense, order, policy, stored, streaming
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.streaming import Needs, Reduced
from coulomb.similarity.tiles import Problem

NO_SECOND_DERIVATIVE = (
    "the streaming backend and attention have no second derivative and no vmap or jvp (create_graph=True, torch.func) for a "
    "problem that is too large to store: use backend='dense', or `with coulomb.similarity.use_backend('dense'):` around a loss"
)


def engine(problem: Problem, store: bool = False) -> Any:
    """The module whose ``forward`` and ``backward`` reduce the problem; counted, and a reason against attention is logged."""
    if store:
        return stored
    name, counts = policy.engine(problem, attention.agrees), policy.current().engines
    if ":" in name and name not in counts:
        attention.log.info("attention is not used: %s", name)
    counts[name] += 1
    return attention if name == "attention" else streaming


def reduce(problem: Problem, *, store: bool) -> tuple[Tensor, Tensor | None]:
    """(rows [P, N], columns [M] or None) with gradients of queries, keys, scale and bias. ``store``: as a single tile."""
    fixed = [value is None or not value.requires_grad for value in (problem.keys_MD, problem.bias_M)]
    simple = len(problem.powers) == 1 and not problem.both and problem.reduction == "lse" and not store
    learning = torch.is_grad_enabled() and problem.queries_ND.requires_grad
    attend = simple and problem.keys_MD is not None and all(fixed) and learning
    compiling = torch.compiler.is_compiling()
    if torch._C._are_functorch_transforms_active() and not compiling:
        if not store:
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        return dense.reduce(problem)
    if compiling or abstract(problem.queries_ND):
        rows, columns, *_ = torch.ops.coulomb.reduce(*_flattened(problem), attend, store)
    else:
        rows, columns = Reduce.apply(*problem.operands, problem, attend, store, torch.is_grad_enabled())
    return rows, columns if problem.both else None


class Reduce(torch.autograd.Function):
    """`streaming` or `stored` for eager autograd."""

    # forward takes ctx instead of having a setup_context: torch inspects the signature of the latter in every call, which
    # takes longer than a small problem does.
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Rows and columns."""
        queries_ND, keys_MD, scale, bias_M, problem, attend, store, learning = inputs
        learning = learning and any(ctx.needs_input_grad)
        ctx.engine = engine(problem, store)
        reduced = ctx.engine.forward(problem, attend=attend, learning=learning)
        ctx.set_materialize_grads(False)
        tensor_scale = scale if isinstance(scale, Tensor) else None
        ctx.save_for_backward(queries_ND, keys_MD, tensor_scale, bias_M, reduced.rows_PN, reduced.columns_M)
        ctx.attended_ND, ctx.cached, ctx.cache, ctx.store = reduced.attended_ND, reduced.cached, reduced.cache, store
        ctx.problem = problem.without_operands()
        return reduced.rows_PN, reduced.columns_M

    @staticmethod
    def backward(ctx: Any, grad_PN: Tensor | None, grad_M: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the queries, the keys, the scale and the bias."""
        *operands, rows_PN, columns_M = ctx.saved_tensors
        problem = ctx.problem.with_operands(*operands)
        needs, others = ctx.needs_input_grad[:4], (None,) * 4
        if torch.is_grad_enabled():
            if not ctx.store:
                raise RuntimeError(NO_SECOND_DERIVATIVE)
            return *_differentiable_backward(problem, grad_PN, grad_M, needs), *others
        grad_PN = torch.zeros_like(rows_PN) if grad_PN is None else grad_PN
        grad_M = torch.zeros_like(columns_M) if problem.both and grad_M is None else grad_M
        reduced = Reduced(rows_PN, columns_M, ctx.attended_ND, ctx.cached, ctx.cache)
        return *ctx.engine.backward(problem, reduced, grad_PN, grad_M, needs), *others


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


# A problem as the arguments of an operator, which are tensors and numbers only.
PROBLEM = (
    "Tensor queries, Tensor? keys, Tensor scale, Tensor? bias, Tensor? query_ids, Tensor? key_ids, Tensor? mask, "
    "Tensor? at_least, float[] powers, int[] numbers"
)
REDUCTIONS = ("lse", "sum", "softplus")
HALVES = (None, torch.bfloat16, torch.float16)


def _flattened(problem: Problem) -> tuple[Any, ...]:
    pairs = problem.pairs
    same = -1 if pairs.same is None else int(pairs.same)
    backend = policy.BACKENDS.index(problem.backend)
    numbers = [int(pairs.drop_self), same, pairs.instances or 0, REDUCTIONS.index(problem.reduction), int(problem.both),
               int(problem.unit), problem.tile, HALVES.index(problem.half), backend]  # fmt: skip
    scale = torch.as_tensor(problem.scale, dtype=problem.queries_ND.dtype, device=problem.queries_ND.device)
    tensors = problem.queries_ND, problem.keys_MD, scale, problem.bias_M
    return *tensors, pairs.query_ids, pairs.key_ids, pairs.mask, problem.at_least_N, list(problem.powers), numbers


def _unflattened(flat: Sequence[Any]) -> Problem:
    queries_ND, keys_MD, scale, bias_M, query_ids, key_ids, mask, at_least_N, powers, numbers = flat
    drop_self, same, instances, reduction, both, unit, tile, half, backend = numbers
    shape = len(queries_ND), len(queries_ND if keys_MD is None else keys_MD)
    same = None if same < 0 else bool(same)
    pairs = Pairs(shape, queries_ND.device, bool(drop_self), same, query_ids, key_ids, instances or None, mask)
    operands = queries_ND, keys_MD, scale, bias_M
    options: dict[str, Any] = {"reduction": REDUCTIONS[reduction], "powers": tuple(powers), "both": bool(both)}
    options |= {"at_least_N": at_least_N, "unit": bool(unit), "tile": tile, "half": HALVES[half]}
    options["backend"] = policy.BACKENDS[backend]
    return Problem(*operands, pairs, **options)


@torch.library.custom_op(
    "coulomb::reduce",
    mutates_args=(),
    schema=f"({PROBLEM}, bool attend, bool store) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _reduce(*inputs: Any) -> tuple[Tensor, ...]:
    """Rows, columns, attended, cached; empty where not computed."""
    *flat, attend, store = inputs
    problem = _unflattened(flat)
    reduced = engine(problem, store).forward(problem, attend=attend)
    results = reduced.rows_PN, reduced.columns_M, reduced.attended_ND, reduced.cached[0] if store else None
    return tuple(problem.queries_ND.new_empty(0) if result is None else result for result in results)


@_reduce.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    *flat, attend, store = inputs
    problem = _unflattened(flat)
    new, (n, m), powers = problem.queries_ND.new_empty, problem.pairs.shape, len(problem.powers)
    attended = problem.queries_ND.shape if attend else 0
    return new(powers, n), new(m if problem.both else 0), new(attended), new((powers, n, m) if store else 0)


@torch.library.custom_op(
    "coulomb::reduce_backward",
    mutates_args=(),
    schema=f"({PROBLEM}, Tensor rows, Tensor columns, Tensor attended, Tensor cached, Tensor grad_rows, "
    "Tensor grad_columns, bool[] needs) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _reduce_backward(*inputs: Any) -> tuple[Tensor, ...]:
    """Gradients of queries, keys, scale and bias; empty where not needed."""
    *flat, rows_PN, columns_M, attended_ND, cached, grad_PN, grad_M, needs = inputs
    problem, store = _unflattened(flat), cached.numel() > 0
    columns, grad_M = (columns_M, grad_M) if problem.both else (None, None)
    attended = attended_ND if attended_ND.numel() else None
    reduced = Reduced(rows_PN, columns, attended, [cached] if store else ())
    gradients = engine(problem, store).backward(problem, reduced, grad_PN, grad_M, needs)
    new = problem.queries_ND.new_empty
    return tuple(grad if need and grad is not None else new(0) for grad, need in zip(gradients, needs, strict=True))


@_reduce_backward.register_fake
def _(*inputs: Any) -> tuple[Tensor, ...]:
    *operands, needs = *inputs[:4], inputs[-1]
    new = inputs[0].new_empty
    return tuple(
        torch.empty_like(x) if need and x is not None else new(0) for x, need in zip(operands, needs, strict=True)
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.powers, ctx.numbers, _, _ = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, grad_PN: Tensor, grad_M: Tensor, *_: Any) -> tuple[Any, ...]:
    tensors, results = ctx.saved_tensors[:8], ctx.saved_tensors[8:]
    needs = list(ctx.needs_input_grad[:4])
    grads = torch.ops.coulomb.reduce_backward(*tensors, ctx.powers, ctx.numbers, *results, grad_PN, grad_M, needs)
    return *(grad if need else None for grad, need in zip(grads, needs, strict=True)), *([None] * 8)


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
