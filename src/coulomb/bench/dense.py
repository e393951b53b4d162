"""The usual implementations, as a reader of the papers would write them: whole matrices, eager PyTorch.

They are what the losses are compared with for speed, and in fp64 what they are checked against. Each takes a loss's
call arguments and then its options.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize


def ntxent(view0: Tensor, view1: Tensor, temperature: float) -> Tensor:
    """Cross-entropy on the matrix of all views, self removed by −inf."""
    rows = normalize(torch.cat([view0, view1]))
    scores = rows @ rows.T / temperature
    scores.fill_diagonal_(-torch.inf)
    return cross_entropy(scores, torch.arange(len(rows), device=rows.device).roll(len(view0)))


def infonce(
    query: Tensor, positive: Tensor, negatives: Tensor | None = None, *, temperature: float, symmetric: bool = False
) -> Tensor:
    """Cross-entropy with the positive on the diagonal, or with negatives in column 0 (MoCo)."""
    query, positive = normalize(query), normalize(positive)
    if negatives is not None:
        own = (query * positive).sum(1, keepdim=True)
        scores = torch.cat([own, query @ normalize(negatives).T], 1) / temperature
        return cross_entropy(scores, torch.zeros(len(query), dtype=torch.long, device=query.device))
    scores = query @ positive.T / temperature
    target = torch.arange(len(query), device=query.device)
    if symmetric:
        return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2
    return cross_entropy(scores, target)


def supcon(features: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The mean of log-probabilities over a mask of positives, of [B, V, D]."""
    rows = normalize(torch.cat(features.unbind(1)))
    ids = labels.repeat(features.shape[1])
    scores = rows @ rows.T / temperature
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    positive = (ids[:, None] == ids) & ~itself
    log_probability = scores - torch.logsumexp(scores.masked_fill(itself, -torch.inf), 1, keepdim=True)
    return -((log_probability * positive).sum(1) / positive.sum(1)).mean()


def hard_negative(view0: Tensor, view1: Tensor, temperature: float, beta: float, tau_plus: float) -> Tensor:
    """In exponentials, as the authors of the hard and of the debiased (beta = 0) loss write it."""
    rows = normalize(torch.cat([view0, view1]))
    n, count = len(view0), 2 * len(view0) - 2
    scores = (rows @ rows.T / temperature).exp()
    index = torch.arange(2 * n, device=rows.device)
    own = scores[index, index.roll(n)]
    dropped = (index[:, None] - index) % n == 0
    negative = scores.masked_fill(dropped, 0)
    if beta:
        importance = negative**beta
        reweighted = (importance * negative).sum(1) / (importance.sum(1) / count)
    else:
        reweighted = negative.sum(1)
    others = (reweighted - tau_plus * count * own) / (1 - tau_plus)
    others = others.clamp_min(count * torch.exp(torch.tensor(-1 / temperature, dtype=rows.dtype)).item())
    return -(own / (own + others)).log().mean()


def debiased(view0: Tensor, view1: Tensor, temperature: float, tau_plus: float) -> Tensor:
    """`hard_negative` without hardness."""
    return hard_negative(view0, view1, temperature, 0.0, tau_plus)


def ntxent_in_strips(view0: Tensor, view1: Tensor, temperature: float, rows: int = 1024) -> tuple[Tensor, ...]:
    """(loss, gradient, gradient) of `ntxent`, one strip of the matrix at a time: the reference where it does not fit."""
    leaves = view0.detach().requires_grad_(), view1.detach().requires_grad_()
    unit = normalize(torch.cat(leaves))
    keys = unit.detach().requires_grad_()
    index = torch.arange(len(keys), device=keys.device)
    total = torch.zeros((), dtype=torch.float64, device=keys.device)
    for strip in index.split(rows):
        scores = keys[strip] @ keys.T / temperature
        scores[torch.arange(len(strip)), strip] = -torch.inf
        part = cross_entropy(scores, (strip + len(view0)) % len(keys), reduction="sum") / len(keys)
        part.backward()
        total += part.detach()
    return total, *torch.autograd.grad(unit, leaves, keys.grad)


IN_STRIPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {"ntxent": ntxent_in_strips}

# Copies of the matrix that one step holds at its peak, generously; for what fits a machine.
COPIES = {"ntxent": 4, "infonce": 4, "supcon": 7, "hard_negative": 9, "debiased": 7}
