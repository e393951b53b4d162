"""The oracle: every reduction in one line on the stored matrix S [N, M]. Differentiable any number of times.

`coulomb.similarity.streaming` must compute the same.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.similarity.pairs import Pairs
from coulomb.similarity.products import full_precision, matmul
from coulomb.similarity.tiles import Problem, below


def reduce(problem: Problem) -> tuple[Tensor, Tensor | None]:
    """(rows [P, N], columns [M] or None) of a problem."""
    scores, pairs = matrix(problem.queries_ND, problem.keys, problem.scale, problem.bias_M), problem.pairs
    with full_precision(problem.queries_ND):
        if problem.at_least_N is not None:
            scores = scores.masked_fill(scores < problem.at_least_N[:, None], -torch.inf)
        if problem.top_k is not None:
            last = topk(scores.detach(), pairs, problem.top_k)[0][:, -1:]
            scores = scores.masked_fill(scores < below(last, problem.scale), -torch.inf)
        if problem.reduction == "sum":
            return sum(scores.masked_fill(scores == -torch.inf, 0), pairs)[None], None
        if problem.reduction == "softplus":
            return sum(softplus(scores, threshold=50), pairs)[None], None
        rows = torch.stack([lse(power * scores, pairs) for power in problem.powers])
        return rows, lse(scores.T, pairs.transposed()) if problem.both else None


def matrix(queries_ND: Tensor, keys_MD: Tensor, scale: float | Tensor, bias_M: Tensor | None) -> Tensor:
    """S = scale · Q·Kᵀ + bias, stored."""
    queries_ND = queries_ND if isinstance(scale, float) and scale == 1 else scale * queries_ND
    scores = matmul(queries_ND, keys_MD.T)
    return scores if bias_M is None else scores + bias_M


def lse(scores_NM: Tensor, pairs: Pairs) -> Tensor:
    """log Σ_j w_ij exp s_ij, [N]; −inf with zero gradient where no pair counts."""
    weights, hidden = pairs.weights(*pairs.everything), pairs.hidden(*pairs.everything)
    if weights is not None:
        scores_NM = scores_NM + weights.to(scores_NM.dtype).clamp_min(torch.finfo(scores_NM.dtype).tiny).log()
    return (scores_NM if hidden is None else scores_NM.masked_fill(hidden, -torch.inf)).logsumexp(1)


def sum(values_NM: Tensor, pairs: Pairs) -> Tensor:
    """Σ_j w_ij v_ij, [N]."""
    weights, hidden = pairs.weights(*pairs.everything), pairs.hidden(*pairs.everything)
    counted = values_NM if hidden is None else values_NM.masked_fill(hidden, 0)
    return counted.sum(1) if weights is None else (counted * weights).sum(1)


def topk(scores_NM: Tensor, pairs: Pairs, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns of the k largest, [N, k]; −inf and −1 where fewer than k pairs count."""
    hidden = pairs.hidden(*pairs.everything)
    values, columns = (scores_NM if hidden is None else scores_NM.masked_fill(hidden, -torch.inf)).topk(k, dim=1)
    return values, columns.masked_fill(values == -torch.inf, -1)
