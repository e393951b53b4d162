"""Do the negatives push as hard as the positive pulls? An identity that a loss can be checked against."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.diagnostics.strips import strips, unit
from coulomb.errors import InputError

ScoreLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class GradientBalance:
    """Means over anchors of ``pull`` = |∂L/∂s⁺| and ``push`` = Σ_j |∂L/∂s_j|, s being cosines, and ``ratio``, the mean of
    push/pull. ``worst`` is the largest |push/pull − 1| of an anchor; anchors whose positive has no gradient are left out."""

    pull: float
    push: float
    ratio: float
    worst: float


def infonce_scores(positive: Tensor, negatives: Tensor) -> Tensor:
    """InfoNCE of scores s⁺ [n] and s [n,M] (−∞: no negative): log(1 + Σ_j e^{s_j − s⁺}), [n]."""
    return softplus(negatives.logsumexp(1) - positive, threshold=700)


def gradient_balance(
    x: Tensor, y: Tensor, temperature: float, keys: Tensor | None = None, *, loss: ScoreLoss = infonce_scores
) -> GradientBalance:
    """`GradientBalance` of anchors ``x`` [n,D] with positives ``y`` [n,D], by differentiating ``loss`` in fp64.

    For InfoNCE ∂L/∂s⁺ = −(1 − P⁺)/τ and ∂L/∂s_j = P_j/τ, so the negatives' magnitudes sum to the positive's: ratio 1,
    whatever τ and the embeddings (Wang and Liu, 2021). The same holds for every function of Σ_j e^{s_j − s⁺}; the simple
    loss −s⁺ + λΣ_j s_j has λM.

    Args:
        x, y: two views of the same images; normalised here.
        temperature: τ; ``loss`` gets cosines/τ.
        keys: [M,D] negatives of all anchors, as a queue's; None: the other images' rows of ``y``.
        loss: (positive [n], negatives [n,M]) → loss of each anchor [n].

    Strips of whole rows stream by. Raises `InputError` for shapes that do not fit or values that are not finite.
    """
    if not temperature > 0:
        raise InputError(f"temperature={temperature}: must be positive")
    first, second = (each.double() for each in (unit(x, "x", least=1 if keys is not None else 2), unit(y, "y", like=x)))
    others = second if keys is None else unit(keys, "keys").double()
    ids = torch.arange(len(first), device=first.device) if keys is None else None
    pulls, pushes = [], []
    for rows, cosines, counts in strips(first, others, ids, ids):
        positive = (first[rows] * second[rows]).sum(1).requires_grad_()
        negatives = cosines.requires_grad_()
        with torch.enable_grad():
            hidden = (negatives / temperature).masked_fill(~counts, -torch.inf)
            total = loss(positive / temperature, hidden).sum()
            pull, push = torch.autograd.grad(total, (positive, negatives))
        pulls.append(pull.abs())
        pushes.append(push.abs().sum(1))
    pulled, pushed = torch.cat(pulls), torch.cat(pushes)
    ratio = (pushed / pulled)[pulled > 0]
    if not len(ratio):
        raise InputError("no anchor's positive has a gradient: there is nothing to compare")
    return GradientBalance(
        float(pulled.mean()), float(pushed.mean()), float(ratio.mean()), float((ratio - 1).abs().max())
    )
