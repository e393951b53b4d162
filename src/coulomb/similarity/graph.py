"""The folds as differentiable operations: for eager autograd, and as custom operators that `torch.compile` leaves whole."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.checked import abstract
from coulomb.similarity import dense, kept, streaming
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.problem import Problem
from coulomb.similarity.streaming import Folded

SECOND = (
    "the streaming backend has no second derivative and no vmap or jvp (create_graph=True, torch.func) for a problem that "
    "is too large to store: use backend='dense', or `with coulomb.similarity.use_backend('dense'):` around a loss"
)

HALVES = (None, torch.bfloat16, torch.float16)

# How a Problem travels through an operator, whose arguments are tensors and numbers only.
Flat = tuple[
    Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None,
    list[float], list[int],
]  # fmt: skip


def fold(problem: Problem, *, keep: bool) -> tuple[Tensor, Tensor | None]:
    """(rows [P, N], columns [M] or None) with gradients for queries, keys, scale and bias."""
    frozen_keys = problem.keys_MD is not None and not problem.keys_MD.requires_grad
    frozen_bias = problem.bias_M is None or not problem.bias_M.requires_grad
    simple = len(problem.powers) == 1 and not problem.both and not problem.linear and not keep
    learning = torch.is_grad_enabled() and problem.queries_ND.requires_grad
    attend = simple and frozen_keys and frozen_bias and learning
    compiling = torch.compiler.is_compiling()
    if torch._C._are_functorch_transforms_active() and not compiling:
        if not keep:
            raise RuntimeError(SECOND)
        return dense.fold(problem)
    if compiling or abstract(problem.queries_ND):
        rows, columns, *_ = torch.ops.coulomb.fold(*flattened(problem), attend, keep)
    else:
        operands = problem.queries_ND, problem.keys_MD, problem.scale, problem.bias_M
        rows, columns = Fold.apply(*operands, problem, attend, keep, torch.is_grad_enabled())
    return rows, columns if problem.both else None


class Fold(torch.autograd.Function):
    """`streaming` or `kept` for eager autograd."""

    # forward takes ctx, rather than a setup_context of its own: for the latter torch inspects the signature at each call,
    # which takes longer than a small problem does.
    @staticmethod
    def forward(
        ctx: Any,
        queries_ND: Tensor,
        keys_MD: Tensor | None,
        scale: float | Tensor,
        bias_M: Tensor | None,
        problem: Problem,
        attend: bool,
        keep: bool,
        learning: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Rows and columns; ``learning``: with gradients to come, of whatever needs one."""
        learning = learning and any(ctx.needs_input_grad)
        folded = kept.forward(problem) if keep else streaming.forward(problem, attend=attend, learning=learning)
        ctx.set_materialize_grads(False)
        learned = scale if isinstance(scale, Tensor) else None
        ctx.save_for_backward(queries_ND, keys_MD, learned, bias_M, folded.rows_PN, folded.columns_M)
        ctx.extras, ctx.keep = (folded.attended_ND, folded.kept, folded.tiles), keep
        ctx.static = problem.without_operands()
        return folded.rows_PN, folded.columns_M

    @staticmethod
    def backward(ctx: Any, grad_PN: Tensor | None, grad_M: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients for the queries, the keys, the scale and the bias."""
        queries_ND, keys_MD, scale, bias_M, *results = ctx.saved_tensors
        problem = ctx.static.with_operands(queries_ND, keys_MD, scale, bias_M)
        needs = ctx.needs_input_grad[:4]
        nothing = None, None, None, None
        if torch.is_grad_enabled():
            if not ctx.keep:
                raise RuntimeError(SECOND)
            return *_differentiable_backward(problem, grad_PN, grad_M, needs), *nothing
        grad_PN, grad_M = _both_or_zero(problem, grad_PN, grad_M, results)
        folded = Folded(*results, *ctx.extras)
        grads = (kept.backward if ctx.keep else streaming.backward)(problem, folded, grad_PN, grad_M, needs)
        return grads.queries_ND, grads.keys_MD, grads.scale, grads.bias_M, *nothing


OPERANDS = ("queries_ND", "keys_MD", "scale", "bias_M")


def _both_or_zero(
    problem: Problem, grad_PN: Tensor | None, grad_M: Tensor | None, results: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    rows, columns = results[:2]
    assert rows is not None
    grad_PN = torch.zeros_like(rows) if grad_PN is None else grad_PN
    if problem.both and grad_M is None:
        assert columns is not None
        grad_M = torch.zeros_like(columns)
    return grad_PN, grad_M


def aliased(operand: Any) -> Any:
    """The same tensor as a node of its own: queries may be made of keys, and a gradient for these is not to count those."""
    return operand.view_as(operand) if isinstance(operand, Tensor) else operand


def _differentiable_backward(
    problem: Problem, grad_PN: Tensor | None, grad_M: Tensor | None, needs: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients once more as functions that can themselves be differentiated, by way of the stored matrix."""
    problem = problem.with_operands(*(aliased(getattr(problem, name)) for name in OPERANDS))
    wanted = [getattr(problem, name) for name, need in zip(OPERANDS, needs, strict=True) if need]
    rows, columns = dense.fold(problem)
    pairs = [(rows, grad_PN), (columns, grad_M)]
    values, grads = zip(*[(v, g) for v, g in pairs if v is not None and g is not None], strict=True)
    found = iter(torch.autograd.grad(values, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needs]


def flattened(problem: Problem) -> Flat:
    """A `Problem` as an operator's arguments."""
    pairs = problem.pairs
    same = -1 if pairs.same is None else int(pairs.same)
    numbers = [int(pairs.drop_self), same, pairs.instances or 0, int(problem.both), int(problem.linear),
               int(problem.unit), problem.tile, HALVES.index(problem.half)]  # fmt: skip
    scale = torch.as_tensor(problem.scale, dtype=problem.queries_ND.dtype, device=problem.queries_ND.device)
    tensors = problem.queries_ND, problem.keys_MD, scale, problem.bias_M
    return *tensors, pairs.query_ids, pairs.key_ids, pairs.mask, problem.at_least_N, list(problem.powers), numbers


def _unflattened(flat: Sequence[Any]) -> Problem:
    queries_ND, keys_MD, scale, bias_M, query_ids, key_ids, mask, at_least_N, powers, numbers = flat
    drop_self, same, instances, both, linear, unit, tile, half = numbers
    shape = len(queries_ND), len(queries_ND if keys_MD is None else keys_MD)
    named = None if same < 0 else bool(same)
    pairs = Pairs(shape, queries_ND.device, bool(drop_self), named, query_ids, key_ids, instances or None, mask)
    flags = bool(linear), bool(unit)
    fixed = pairs, tuple(powers), bool(both), at_least_N, *flags, tile
    return Problem(queries_ND, keys_MD, scale, bias_M, *fixed, half=HALVES[half])


@torch.library.custom_op("coulomb::fold", mutates_args=())
def fold_operator(
    queries_ND: Tensor,
    keys_MD: Tensor | None,
    scale: Tensor,
    bias_M: Tensor | None,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    mask: Tensor | None,
    at_least_N: Tensor | None,
    powers: list[float],
    numbers: list[int],
    attend: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`streaming.forward` as an operator: rows, columns, attended, kept; empty where not asked for."""
    flat = (queries_ND, keys_MD, scale, bias_M, query_ids, key_ids, mask, at_least_N, powers, numbers)
    problem = _unflattened(flat)
    folded = kept.forward(problem) if keep else streaming.forward(problem, attend=attend)
    results = folded.rows_PN, folded.columns_M, folded.attended_ND, folded.kept
    first, *others = (queries_ND.new_empty(0) if result is None else result for result in results)
    return first, others[0], others[1], others[2]


@fold_operator.register_fake
def _(
    queries_ND: Tensor,
    keys_MD: Tensor | None,
    scale: Tensor,
    bias_M: Tensor | None,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    mask: Tensor | None,
    at_least_N: Tensor | None,
    powers: list[float],
    numbers: list[int],
    attend: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    new, n, m = queries_ND.new_empty, len(queries_ND), len(queries_ND if keys_MD is None else keys_MD)
    both = numbers[3]
    return (
        new(len(powers), n),
        new(m if both else 0),
        new(queries_ND.shape if attend else 0),
        new((len(powers), n, m) if keep else 0),
    )


@torch.library.custom_op("coulomb::fold_backward", mutates_args=())
def backward_operator(
    queries_ND: Tensor,
    keys_MD: Tensor | None,
    scale: Tensor,
    bias_M: Tensor | None,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    mask: Tensor | None,
    at_least_N: Tensor | None,
    powers: list[float],
    numbers: list[int],
    rows_PN: Tensor,
    columns_M: Tensor,
    attended_ND: Tensor,
    kept_PNM: Tensor,
    grad_PN: Tensor,
    grad_M: Tensor,
    needs: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`streaming.backward` as an operator; empty for the gradients that are not asked for."""
    flat = (queries_ND, keys_MD, scale, bias_M, query_ids, key_ids, mask, at_least_N, powers, numbers)
    problem = _unflattened(flat)
    attended, stored = (extra if extra.numel() else None for extra in (attended_ND, kept_PNM))
    folded = Folded(rows_PN, columns_M if problem.both else None, attended, stored)
    four = needs[0], needs[1], needs[2], needs[3]
    unfold = streaming.backward if folded.kept is None else kept.backward
    grads = unfold(problem, folded, grad_PN, grad_M if problem.both else None, four)
    results = (grads.queries_ND, grads.keys_MD, grads.scale, grads.bias_M)
    a, b, c, d = (
        queries_ND.new_empty(0) if grad is None or not need else grad for grad, need in zip(results, needs, strict=True)
    )
    return a, b, c, d


@backward_operator.register_fake
def _(
    queries_ND: Tensor,
    keys_MD: Tensor | None,
    scale: Tensor,
    bias_M: Tensor | None,
    query_ids: Tensor | None,
    key_ids: Tensor | None,
    mask: Tensor | None,
    at_least_N: Tensor | None,
    powers: list[float],
    numbers: list[int],
    rows_PN: Tensor,
    columns_M: Tensor,
    attended_ND: Tensor,
    kept_PNM: Tensor,
    grad_PN: Tensor,
    grad_M: Tensor,
    needs: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = (
        torch.empty_like(operand) if need and operand is not None else queries_ND.new_empty(0)
        for operand, need in zip((queries_ND, keys_MD, scale, bias_M), needs, strict=True)
    )
    return a, b, c, d


def _setup_operator(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.powers, ctx.numbers, _, _ = inputs
    ctx.save_for_backward(*tensors, *output)


def _operator_backward(ctx: Any, grad_PN: Tensor, grad_M: Tensor, *_: Any) -> tuple[Any, ...]:
    tensors, results = ctx.saved_tensors[:8], ctx.saved_tensors[8:]
    needs = list(ctx.needs_input_grad[:4])
    grads = torch.ops.coulomb.fold_backward(*tensors, ctx.powers, ctx.numbers, *results, grad_PN, grad_M, needs)
    return *(grad if need else None for grad, need in zip(grads, needs, strict=True)), *([None] * 8)


fold_operator.register_autograd(_operator_backward, setup_context=_setup_operator)
