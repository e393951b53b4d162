"""Gradients of a loss: balance of positives and negatives, and norms per class."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.errors import InputError
from coulomb.metrics.cosines import cosine_strips, unit_vectors
from coulomb.metrics.inputs import check_vectors

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
    first, second = (
        each.double()
        for each in (unit_vectors(x, "x", least=1 if keys is not None else 2), unit_vectors(y, "y", like=x))
    )
    others = second if keys is None else unit_vectors(keys, "keys").double()
    ids = torch.arange(len(first), device=first.device) if keys is None else None
    pulls, pushes = [], []
    for rows, cosines, counts in cosine_strips(first, others, ids, ids):
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


def class_gradient_norms(gradients: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """(Σ ‖g_i‖ over the rows of each class [C] float64, rows of each class [C] int64); their ratio is the mean norm.

    ``gradients`` [n,D] are ∂loss/∂features, one row a view; ``labels`` [n], −1 (unknown) left out. Sums rather than means, so
    that batches can be added up. Raises `InputError` for other shapes or values that are not finite.
    """
    rows = check_vectors(gradients, "gradients")
    if labels.shape != (len(rows),) or labels.is_floating_point():
        raise InputError(f"labels must be {len(rows)} whole numbers, got {labels.dtype} {list(labels.shape)}")
    if len(labels) and not -1 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise InputError(f"labels lie in {int(labels.min())}…{int(labels.max())}, outside −1…{num_classes - 1}")
    known = labels >= 0
    own = labels[known].long()
    sums = torch.zeros(num_classes, dtype=torch.float64, device=rows.device)
    sums.index_add_(0, own, rows[known].double().norm(dim=1))
    return sums.cpu(), torch.bincount(own, minlength=num_classes).cpu()


def frequency_exponent(norms: Tensor, counts: Tensor) -> float | None:
    """b of the least-squares fit norm_c ∝ n_c^b over classes: 0 is even-handed, above 0 rare classes are moved less.

    ``norms`` [C] are mean gradient norms, ``counts`` [C] training images; classes with a norm or count of 0 are left out.
    None where fewer than two different counts remain.
    """
    used = (norms > 0) & (counts > 0) & norms.isfinite()
    x, y = counts[used].double().log(), norms[used].double().log()
    if len(x) < 2 or float(x.max() - x.min()) < 1e-9:
        return None
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    return slope if math.isfinite(slope) else None
