"""The lowest value of a loss, and the logits at which it is reached."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from coulomb.ground.errors import InputError


@dataclass(frozen=True)
class LossFloor:
    """The minimum of InfoNCE: ``bound``, a lower bound for any embeddings; ``even``, the value for evenly spread ones.

    >>> round(infonce_floor(6, 0.5, 8, images=4).bound, 3)
    0.348
    """

    bound: float
    even: float


def infonce_at(negatives: float, temperature: float, cosine: float) -> float:
    """ln(1 + N·e^{(cos − 1)/τ}): InfoNCE if positives coincide and all N ``negatives`` have the same ``cosine``."""
    return math.log1p(negatives * math.exp((cosine - 1) / temperature))


def infonce_floor(negatives: int, temperature: float, dim: int, *, images: int | None = None) -> LossFloor:
    """`LossFloor` of InfoNCE with N ``negatives`` per anchor at τ, unit vectors in ``dim`` dimensions, positives aligned.

    With s⁺ = 1/τ the loss is ln(1 + Σ_j e^{(cos_j − 1)/τ}), averaged over anchors:

    - ``bound`` = ln(1 + N·e^{−(1 + c)/τ}), since log-sum-exp is convex and the mean cosine of n points is at least
      −1/(n − 1). c = 1/(n − 1) if the negatives are the views of ``images`` = n images that are all anchors as well
      (NT-Xent of n images: N = 2n − 2), reached by a simplex when n ≤ dim + 1; c = 1 for other keys (a queue), which
      could all be opposite to the anchor.
    - ``even`` = ln(1 + N·E e^{(t − 1)/τ}), t the cosine with a uniformly distributed point on the sphere: the value for
      embeddings that fill the sphere evenly. An approximation for many points; equal to the bound where that is reached.
      E e^{κt} = Γ(D/2)·(2/κ)^{D/2−1}·I_{D/2−1}(κ), computed from its power series.

    Raises `InputError` for numbers out of range.

    >>> floor = infonce_floor(14, 0.5, 8, images=8)
    >>> x = torch.eye(8) - 1 / 8  # a simplex
    >>> from coulomb.losses import NTXentLoss
    >>> abs(NTXentLoss(0.5)(x, x).item() - floor.bound) < 1e-5
    True
    """
    if negatives < 1 or dim < 1 or not 0 < temperature < math.inf or (images is not None and images < 2):
        raise InputError(
            f"negatives={negatives}, dim={dim} must be at least 1, temperature={temperature} positive, "
            f"images={images} at least 2."
        )
    lowest = -1.0 if images is None else -1 / (images - 1)
    bound = infonce_at(negatives, temperature, lowest)
    if images is not None and images <= dim + 1:
        return LossFloor(bound, bound)
    mean = math.exp(log_mean_exp(1 / temperature, dim) - 1 / temperature)
    return LossFloor(bound, math.log1p(negatives * mean))


def log_mean_exp(kappa: float, dim: int) -> float:
    """ln E e^{κt}, t the first coordinate of a uniformly distributed point on the unit sphere in ``dim`` dimensions.

    Σ_m (κ/2)^{2m}·Γ(D/2)/(m!·Γ(m + D/2)); the largest term is below m = κ/2.
    """
    if kappa == 0:
        return 0.0
    m = torch.arange(int(2 * kappa) + 200, dtype=torch.float64)
    half = torch.tensor(dim / 2, dtype=torch.float64)
    terms = 2 * m * math.log(kappa / 2) + torch.lgamma(half) - torch.lgamma(m + 1) - torch.lgamma(m + half)
    return float(terms.logsumexp(0))


def fraction_of_floor_reached(loss: float, no_signal: float, floor: float) -> float:
    """(no_signal − loss)/(no_signal − floor): 0 at the loss of constant embeddings, 1 at the floor, negative if worse.

    >>> fraction_of_floor_reached(loss=3.0, no_signal=5.0, floor=1.0)
    0.5
    """
    if not floor < no_signal:
        raise InputError(f"floor={floor} must be below no_signal={no_signal}.")
    return (no_signal - loss) / (no_signal - floor)


def free_logits(loss: Callable[[Tensor], Tensor], size: int, steps: int = 400) -> Tensor:
    """argmin of ``loss`` over float64 logits [size] that are free parameters, by Adam with a cosine schedule from zeros.

    The optimum of the loss itself, independent of any network: a minimizer of −Σ_k w_k log softmax(x)_k has
    softmax(x)_k = w_k / Σw (Gibbs' inequality), which gives 1/K_y, α/(1+αK_y) and 1/(1+αK_y) of SupCon and PaCo. Logits
    whose optimum is −∞ are strongly negative after ``steps``.

    Raises:
        InputError: the loss is not a finite scalar, or does not depend on the logits.

    Shape:
        output: [size].

    >>> weights = torch.tensor([1.0, 3.0], dtype=torch.float64)
    >>> free_logits(lambda x: -(weights * x.log_softmax(0)).sum(), 2).softmax(0)
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    if size < 1 or steps < 1:
        raise InputError(f"size={size}, steps={steps}: must be at least 1.")
    logits = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        value = loss(logits)
        if value.ndim or not bool(value.isfinite()) or not value.requires_grad:
            raise InputError(f"loss of the free logits is {value}: must be a finite scalar that depends on them.")
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    return logits.detach()


def pull_optimum(weight: float, steps: int = 400) -> float:
    """The p in (0, 1) that minimizes −log p − a·log(1 − p), found numerically; analytically 1/(1 + a).

    The probability of a class center in PaCo whose positives have the weight a = αK_y (Cui et al., 2021): .709 at a = .41.

    >>> round(pull_optimum(0.41), 3)
    0.709
    """
    if not 0 < weight < float("inf"):
        raise InputError(f"weight={weight}: must be positive and finite.")
    logit = free_logits(lambda x: -(logsigmoid(x) + weight * logsigmoid(-x)).sum(), 1, steps)
    return float(torch.sigmoid(logit))
