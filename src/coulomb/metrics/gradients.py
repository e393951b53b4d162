"""Gradients of a loss: the balance of positives and negatives, and norms per class."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.errors import InputError
from coulomb.metrics.cosines import cosine_strips
from coulomb.metrics.inputs import check_integers, check_vectors, unit_vectors

ScoreLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class GradientBalance:
    """Means over anchors of ``pull`` = |∂L/∂s⁺| and ``push`` = Σ_j |∂L/∂s_j|, s being cosines, and of push/pull,
    ``ratio``. ``worst`` is the largest |push/pull − 1|; anchors whose positive has no gradient are left out of both.

    >>> gradient_balance(torch.eye(4), torch.eye(4), 0.5).ratio
    1.0
    """

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

    For InfoNCE ∂L/∂s⁺ = −(1 − P⁺)/τ and ∂L/∂s_j = P_j/τ, so that the magnitudes of the negatives' gradients add up
    to the magnitude of the positive's: the ratio is 1 for every τ and all embeddings (Wang and Liu, 2021). The same holds for
    every function of Σ_j e^{s_j − s⁺}; the simple loss −s⁺ + λΣ_j s_j has the ratio λM.

    Args:
        x, y: two views of the same images; normalized here.
        temperature: τ; ``loss`` gets cosines/τ.
        keys: [M,D] negatives shared by all anchors, such as a queue; default: the other images' rows of ``y``.
        loss: (positive [n], negatives [n,M]) → loss of each anchor [n].

    Computed in strips of whole rows. Raises `InputError` for shapes that do not match or values that are not finite.

    Shape:
        x, y: [n, D].
        keys: [M, D].

    >>> round(gradient_balance(torch.eye(4), torch.eye(4).roll(1, 0), 0.1).ratio, 6)
    1.0
    """
    if not temperature > 0:
        raise InputError(f"temperature={temperature}: must be positive.")
    first = unit_vectors(x, "x", least=1 if keys is not None else 2).double()
    second = unit_vectors(y, "y", like=x).double()
    others = second if keys is None else unit_vectors(keys, "keys").double()
    ids = torch.arange(len(first), device=first.device) if keys is None else None
    pulls, pushes = [], []
    for rows, cosines, counts in cosine_strips(first, others, ids, ids):
        positive = (first[rows] * second[rows]).sum(1).requires_grad_()
        negatives = cosines.requires_grad_()
        with torch.enable_grad():
            masked = (negatives / temperature).masked_fill(~counts, -torch.inf)
            total = loss(positive / temperature, masked).sum()
            pull, push = torch.autograd.grad(total, (positive, negatives))
        pulls.append(pull.abs())
        pushes.append(push.abs().sum(1))
    pull, push = torch.cat(pulls), torch.cat(pushes)
    ratio = (push / pull)[pull > 0]
    if not len(ratio):
        raise InputError("loss: no positive has a gradient, so push/pull is undefined.")
    return GradientBalance(float(pull.mean()), float(push.mean()), float(ratio.mean()), float((ratio - 1).abs().max()))


def class_gradient_norms(gradients: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sums of gradient norms per class [C] float64 and rows per class [C] int64; their ratio is the mean norm.

    ``gradients`` [n,D] are ∂loss/∂features, one row per view; ``labels`` [n], −1 (unknown) is left out. Sums instead
    of means, so that batches can be added up. Raises `InputError` for other shapes or values that are not finite.

    Shape:
        gradients: [n, D].
        labels: [n].
        output: two tensors [C].

    >>> class_gradient_norms(torch.eye(3), torch.tensor([0, 0, 1]), 2)
    (tensor([2., 1.], dtype=torch.float64), tensor([2, 1]))
    """
    rows = check_vectors(gradients, "gradients")
    classes = check_integers(labels, "labels", rows)
    if not -1 <= int(classes.min()) <= int(classes.max()) < num_classes:
        raise InputError(f"labels: {int(classes.min())}…{int(classes.max())} is outside −1…{num_classes - 1}.")
    labeled = classes >= 0
    sums = torch.zeros(num_classes, dtype=torch.float64, device=rows.device)
    sums.index_add_(0, classes[labeled], rows[labeled].double().norm(dim=1))
    return sums.cpu(), torch.bincount(classes[labeled], minlength=num_classes).cpu()


def frequency_exponent(norms: Tensor, counts: Tensor) -> float | None:
    """b of the least-squares fit norm_c ∝ n_c^b over classes: 0 if independent of frequency, above 0 if rare classes get less.

    ``norms`` [C] are mean gradient norms, ``counts`` [C] training images; classes with a norm or count of 0 are left out.
    None if fewer than two different counts remain.

    Shape:
        norms, counts: [C].
        output: a number.

    >>> round(frequency_exponent(torch.tensor([1.0, 10.0]), torch.tensor([10, 1000])), 3)
    0.5
    """
    used = (norms > 0) & (counts > 0) & norms.isfinite()
    x, y = counts[used].double().log(), norms[used].double().log()
    if len(x) < 2 or float(x.max() - x.min()) < 1e-9:
        return None
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    return slope if math.isfinite(slope) else None
