"""Cross-entropy between the softmaxes of two similarities, with gradients computed in the forward pass: 8u, u = N·M·D flops.

A strip of complete rows of both is in memory at a time, so that no maximum or sum is carried from tile to tile, and the
teacher's product is computed once. As in `coulomb.similarity.fused` the gradient is known up to one factor if every row
receives the same upstream gradient; otherwise the backward pass computes the strips again.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coulomb.ground import workers
from coulomb.ground.checked import capturing
from coulomb.ground.workers import Task
from coulomb.similarity import policy
from coulomb.similarity.engine import NO_SECOND_DERIVATIVE, Gradients, Needs, Plan
from coulomb.similarity.products import add_product, full_precision
from coulomb.similarity.streaming import finite, scaled
from coulomb.similarity.tiles import LOG2E, Problem, Tiles, slices

MATRICES = 4  # of a strip that are in memory: s, t, their product, and one that waits for its columns


class Own(NamedTuple):
    """s and t of one more key of each row, [N]."""

    s: Tensor
    t: Tensor


def cross_entropy(problem: Problem, teacher: Problem, own: Own | None, kl: bool) -> Tensor:
    """LSE_j s_ij − Σ_j p_ij s_ij, [N], with the softmax p of the teacher, whose entropy is subtracted if ``kl``."""
    own_s, own_t = (None, None) if own is None else own
    losses: Tensor = CrossEntropy.apply(*problem.operands[:3], own_s, own_t, problem, teacher, kl)
    return losses


class CrossEntropy(torch.autograd.Function):
    """`cross_entropy` for autograd."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """The losses. Keeps the gradients of their sum."""
        queries_ND, keys_MD, scale, own_s, own_t, problem, teacher, kl = inputs
        own, needs = None if own_s is None else Own(own_s, own_t), (*ctx.needs_input_grad[:3], False)
        with full_precision(queries_ND):
            losses, shares, gradients = _strips(problem, teacher, own, needs, kl)
        ctx.save_for_backward(queries_ND, keys_MD, scale if isinstance(scale, Tensor) else None, None, own_s, own_t)
        ctx.problem, ctx.teacher, ctx.shares, ctx.gradients = problem.without_operands(), teacher, shares, gradients
        return losses

    @staticmethod
    def backward(ctx: Any, grad_N: Tensor) -> tuple[Tensor | None, ...]:
        """The kept gradients times the upstream gradient, or gradients from the strips, computed again."""
        if torch.is_grad_enabled():
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        *operands, own_s, own_t = ctx.saved_tensors
        expanded = grad_N.stride(0) == 0  # equal for all rows, without reading values
        if expanded or (not capturing(grad_N) and bool((grad_N == grad_N[0]).all())):
            gradients = [None if grad is None else grad * grad_N[0] for grad in ctx.gradients[:3]]
        else:
            own, needs = None if own_s is None else Own(own_s, own_t), (*ctx.needs_input_grad[:3], False)
            with full_precision(grad_N):
                problem = ctx.problem.with_operands(*operands)
                gradients = list(_strips(problem, ctx.teacher, own, needs, False, grad_N)[2][:3])
        return *gradients, None if own_s is None else ctx.shares * grad_N, None, None, None, None


def _strips(
    problem: Problem, teacher: Problem, own: Own | None, needs: Needs, kl: bool, grad_N: Tensor | None = None
) -> tuple[Tensor, Tensor, Gradients]:
    """(losses, their derivatives by own s, gradients of Σ_i g_i·loss_i) with g = 1 if ``grad_N`` is None.

    G_ij = g_i (q_ij − p_ij) with the softmaxes q of s and p of t, one strip of complete rows at a time.
    """
    tiles, taught, (n, m) = Tiles(problem), Tiles(teacher, half=False), problem.pairs.shape
    queries_ND, keys_MD, everything = tiles.queries_ND, tiles.keys_MD, slice(0, m)
    need_columns = needs[0] if problem.keys_MD is None else needs[1]
    losses, shares = queries_ND.new_zeros(n), queries_ND.new_zeros(n)
    grad_ND = torch.zeros_like(queries_ND) if needs[0] or needs[2] else None
    grad_MD = torch.zeros_like(keys_MD) if need_columns else None
    strips = [*slices(n, max(1, policy.strip_height(m, n, tiles.tile) // MATRICES))]
    waiting: dict[int, Tensor] = {}  # G of the strips that threads are at

    def sum_rows(rows: slice) -> None:
        """Losses of complete rows, and G K."""
        own_s, own_t = (None, None) if own is None else (one[rows] * LOG2E for one in own)
        lse_t, p = softmax_(taught.exponents(rows, everything), own_t)
        s = tiles.exponents(rows, everything, keep=True)
        expected = weighted(p, s, problem, tiles.buffer(s.shape, "product"))
        lse_s, gradient = softmax_(s, own_s)
        entropy = torch.special.entr(p).sum(1) if kl else 0
        if own_s is not None and own_t is not None:
            share = (own_t - lse_t).exp2_()
            expected += share * own_s
            entropy = entropy + torch.special.entr(share) if kl else 0
            shares[rows] = (own_s - lse_s).exp2_().sub_(share)
        losses[rows] = (lse_s - expected) / LOG2E - entropy
        gradient.sub_(p)
        if grad_N is not None:
            gradient.mul_(grad_N[rows, None])
        waiting[rows.start] = gradient = tiles.operand(gradient)
        if grad_ND is not None:
            add_product(grad_ND[rows], gradient, tiles.operands_MD)

    def sum_columns(rows: slice, cols: slice) -> None:
        """Gᵀ Q."""
        if grad_MD is not None:
            add_product(grad_MD[cols], waiting[rows.start][:, cols].T, tiles.operand(queries_ND[rows]))

    def tasks() -> Iterator[Task]:
        columns = [*slices(m, tiles.tile)] if need_columns else []
        for rows in strips:
            # A strip's columns wait for its rows; then they can run at the same time, and in order with other strips' columns.
            places = [(rows.start, cols.start) for cols in columns]
            yield Task(partial(sum_rows, rows), tuple(places))
            for cols, place in zip(columns, places, strict=True):
                yield Task(partial(sum_columns, rows, cols), (place, ("columns", cols.start)))
            yield Task(partial(waiting.pop, rows.start), tuple(places))

    workers.run(tasks(), len(strips) if tiles.on_cpu else 1)
    return losses, shares, scaled(problem, Plan("tiles"), needs[2], grad_ND, grad_MD, None)


def softmax_(tile_RM: Tensor, own_R: Tensor | None) -> tuple[Tensor, Tensor]:
    """(log2 of the sum of 2^t over a row and ``own``, 0 for an empty row; the softmax, in place)."""
    largest = tile_RM.amax(1)
    largest = finite(largest if own_R is None else torch.maximum(largest, own_R))
    total = tile_RM.sub_(largest[:, None]).exp2_().sum(1)
    if own_R is not None:
        total += (own_R - largest).exp2_()
    total.masked_fill_(total == 0, 1)
    return total.log2() + largest, tile_RM.div_(total[:, None])


def weighted(p_RM: Tensor, t_RM: Tensor, problem: Problem, out: Tensor) -> Tensor:
    """Σ_j p_j t_j of each row, over the pairs that count."""
    if problem.pairs.drop_self or problem.pairs.same is not None:
        torch.nan_to_num(t_RM, nan=torch.nan, posinf=torch.inf, neginf=0, out=out).mul_(p_RM)
    else:
        torch.mul(p_RM, t_RM, out=out)
    return out.sum(1)
