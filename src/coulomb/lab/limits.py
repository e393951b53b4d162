"""Both ends of the temperature: InfoNCE beside its closed forms, on given embeddings."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from coulomb.losses import InfoNCELoss, SimpleContrastiveLoss

COLD = (0.1, 0.03, 0.01, 0.003, 0.001)
WARM = (1.0, 3.0, 10.0, 30.0, 100.0)


def limits(queries: Tensor, keys: Tensor) -> dict[str, list[dict[str, float]]]:
    """``cold`` and ``warm``: the loss at low and at high τ, its closed form, and how far they are apart.

    InfoNCE of ``queries`` [N, D] against ``keys`` [N, D], float64, the positive on the diagonal, mean over N:

        τ → 0    τ·L → max(hardest − s⁺, 0), and exceeds it by τ·ln N at most
        τ → ∞    L = ln N − (s⁺ − s̄)/τ + Var(s)/2τ² + O(τ⁻³), s̄ and Var over all N keys: the simple loss with λ = 1/N;
                 off by R³/(36√3·τ³) at most, R the range of s: a third cumulant is at most R³/(6√3)

    ``cosine``: of the gradient by all queries with that of the limit.
    """
    cosines = queries @ keys.T
    n, own = len(cosines), cosines.diagonal()
    others = cosines.masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
    limit = float((others.amax(1) - own).clamp_min(0).mean())
    hinge = _gradient(queries, keys, _hinge)
    simple = _gradient(queries, keys, SimpleContrastiveLoss(1 / max(n - 1, 1)))
    spread = float((cosines.amax(1) - cosines.amin(1)).max())
    cold, warm = [], []
    for tau in COLD:
        loss = InfoNCELoss(temperature=tau)
        found = tau * float(loss(queries, keys))
        cosine = float(cosine_similarity(_gradient(queries, keys, loss), hinge, dim=0))
        cold.append(
            {"tau": tau, "found": found, "limit": limit, "error": found - limit, "bound": tau * math.log(n)}
            | {"cosine": cosine}
        )
    for tau in WARM:
        loss = InfoNCELoss(temperature=tau)
        found = float(loss(queries, keys))
        form = math.log(n) - float((own - cosines.mean(1)).mean()) / tau
        form += float(cosines.var(1, correction=0).mean()) / (2 * tau**2)
        cosine = float(cosine_similarity(_gradient(queries, keys, loss), simple, dim=0))
        warm.append(
            {"tau": tau, "found": found, "limit": form, "error": abs(found - form), "cosine": cosine}
            | {"bound": spread**3 / (36 * math.sqrt(3) * tau**3)}
        )
    return {"cold": cold, "warm": warm}


def _hinge(queries: Tensor, keys: Tensor) -> Tensor:
    cosines = torch.nn.functional.normalize(queries, dim=1) @ keys.T
    others = cosines.masked_fill(torch.eye(len(cosines), dtype=torch.bool), -torch.inf)
    return (others.amax(1) - cosines.diagonal()).clamp_min(0).mean()


def _gradient(queries: Tensor, keys: Tensor, loss: nn.Module | Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    leaf = queries.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf, keys), leaf)
    return found.flatten()


def tables(found: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """For the page."""
    cold = [[_text(row[key]) for key in ("tau", "found", "limit", "error", "bound", "cosine")] for row in found["cold"]]
    warm = [[_text(row[key]) for key in ("tau", "found", "limit", "error", "bound", "cosine")] for row in found["warm"]]
    return [
        {
            "title": "Cold: towards max(hardest − positive, 0)",
            "lead": "InfoNCE times τ on trained embeddings. The excess is between 0 and τ·ln N, and the gradient turns into "
            "that of a triplet of the anchor, its positive and its hardest negative.",
            "head": ["τ", "τ·loss", "limit", "excess", "τ·ln N", "cosine of the gradients"],
            "rows": cold,
        },
        {
            "title": "Warm: towards the simple loss",
            "lead": "The same beside ln N − (s⁺ − s̄)/τ + Var/2τ²: ten times the τ, a thousandth of the error, "
            "and the gradient turns into that of the simple loss, which pushes all negatives alike.",
            "head": ["τ", "loss", "closed form", "off by", "at most, by theory", "cosine of the gradients"],
            "rows": warm,
        },
    ]


def _text(number: float) -> str:
    return f"{number:.6g}"
