"""Which classes a loss moves: the size of its gradient, class by class."""

import math

import torch
from torch import Tensor

from coulomb.diagnostics.vectors import matrix
from coulomb.errors import InputError


def class_gradient_norms(gradients: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """(Σ ‖g_i‖ over the rows of each class [C] float64, rows of each class [C] int64); their ratio is the mean norm.

    ``gradients`` [n,D] are ∂loss/∂features, one row a view; ``labels`` [n], −1 (unknown) left out. Sums rather than means, so
    that batches can be added up. Raises `InputError` for other shapes or values that are not finite.
    """
    rows = matrix(gradients, "gradients")
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
