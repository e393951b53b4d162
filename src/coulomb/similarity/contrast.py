"""The positive against the rest: softplus(lse − s⁺)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.similarity.problem import Problem, eager


def losses(row_lse_N: Tensor, column_lse_N: Tensor | None, positives_N: Tensor) -> Tensor:
    """softplus(lse − s⁺) = −log(e^{s⁺} / (e^{s⁺} + e^{lse})), [N]; with both directions their mean. No cancellation near 0."""
    rows = softplus(row_lse_N - positives_N, threshold=50)
    return rows if column_lse_N is None else (rows + softplus(column_lse_N - positives_N, threshold=50)) / 2


def positives(problem: Problem, offset: int) -> Tensor:
    """s_ij for j = i + offset (mod M), [N]."""
    queries, keys = problem.queries_ND, problem.keys
    if offset == 0:
        return problem.scale * (queries * keys[: len(queries)]).sum(1)
    if problem.keys_MD is None and 2 * offset == len(keys):  # two views: each pair's product once
        dots = PairDots.apply(queries) if eager() else (queries[:offset] * queries[offset:]).sum(1)
        return (problem.scale * dots).expand(2, -1).reshape(-1)
    return problem.scale * (queries * keys.roll(-offset, 0)[: len(queries)]).sum(1)


class PairDots(torch.autograd.Function):
    """q_i·q_{i+n} of rows [2n, D], [n]; the derivative in one piece, where two slices would each be padded with zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        """The products."""
        ctx.save_for_backward(rows)
        first, second = rows.chunk(2)
        return (first * second).sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """The other row of each pair, times its gradient."""
        (rows,) = ctx.saved_tensors
        out: Tensor = rows.view(2, len(grad), -1).flip(0) * grad[:, None]
        return out.view_as(rows)
