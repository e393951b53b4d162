"""Where a loss is at rest: its minimum over logits that are free to take any value."""

from collections.abc import Callable

import torch
from torch import Tensor

from coulomb.errors import InputError


def free_logits(loss: Callable[[Tensor], Tensor], size: int, steps: int = 400) -> Tensor:
    """argmin of ``loss`` over float64 logits [size], from zeros, by Adam with a decaying step.

    What a loss asks for, apart from what a network can give: a minimiser of −Σ_k w_k log softmax(x)_k has
    softmax(x)_k = w_k / Σw (Gibbs' inequality), so that 1/K_y, α/(1+αK_y) and 1/(1+αK_y) of SupCon and PaCo can be read off
    their losses. Logits that want to go to −∞ are far down after ``steps``, not there.

    Raises:
        InputError: the loss is not a finite scalar, or does not depend on the logits.
    """
    if size < 1 or steps < 1:
        raise InputError(f"size={size}, steps={steps}: both at least 1")
    logits = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        value = loss(logits)
        if value.ndim or not bool(value.isfinite()) or not value.requires_grad:
            raise InputError(f"loss of the free logits is {value}: it must be a finite scalar that depends on them")
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    return logits.detach()


def pull_optimum(weight: float, steps: int = 400) -> float:
    """The p in (0, 1) at which −log p − a·log(1 − p) is least, found numerically; 1/(1 + a) by calculus.

    This is what αK_y positives do to a class centre of PaCo (Cui et al., 2021): a = .41 leaves it .709.
    """
    if not 0 < weight < float("inf"):
        raise InputError(f"weight={weight}: must be positive and finite")
    log_sigmoid = torch.nn.functional.logsigmoid
    found = free_logits(lambda x: -(log_sigmoid(x) + weight * log_sigmoid(-x)).sum(), 1, steps)
    return float(torch.sigmoid(found))
