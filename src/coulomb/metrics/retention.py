"""How much of one network's features another network keeps: linear CKA, and what a linear map can recover."""

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import check_vectors, unit_vectors

RIDGES = tuple(
    10.0**power for power in range(-6, 3)
)  # penalties of the linear map, times the mean squared singular value
LEAST = 16  # images per half to fit a linear map


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Centered kernel alignment with linear kernels: 1 if x and y are equal up to rotation and scale, about 0 if unrelated.

    With K = XXᵀ and L = YYᵀ, HSIC(K, L) / √(HSIC(K, K)·HSIC(L, L)) (Kornblith et al., 2019), where HSIC is the unbiased
    estimate (Song et al., 2012; Nguyen et al., 2021): the biased one tends to 1 for fewer images than dimensions. It may
    be slightly negative. The memory is linear in n.

    Args:
        x, y: features [n, D] and [n, D'] of the same n ≥ 4 images by two networks.

    Returns:
        The alignment; 0 if one side is constant.

    Raises:
        InputError: other shapes, or values that are not finite.

    Shape:
        x: [n, D].
        y: [n, D'].
        output: a number.

    >>> x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    >>> round(linear_cka(x, 2 * x.roll(1, 1)), 3)  # rotated and scaled
    1.0
    """
    first, second = check_vectors(x, "x", least=4).double(), check_vectors(y, "y", least=4).double()
    if len(first) != len(second):
        raise InputError(f"x {list(x.shape)} and y {list(y.shape)} must be features of the same images.")
    first, second = first - first.mean(0), second - second.mean(0)
    norms = _hsic(first, first) * _hsic(second, second)
    return float(_hsic(first, second) / norms.sqrt()) if float(norms) > 1e-24 else 0.0


def _hsic(x: Tensor, y: Tensor) -> Tensor:
    """n(n − 3) times the unbiased HSIC of the kernels XXᵀ and YYᵀ, without forming them."""
    n, k, m = len(x), x.square().sum(1), y.square().sum(1)  # k, m: their diagonals, which are set to zero
    rows, columns = x @ x.sum(0) - k, y @ y.sum(0) - m
    product = (x.T @ y).square().sum() - k @ m
    return product + rows.sum() * columns.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (rows @ columns)


def recovered(x: Tensor, y: Tensor) -> float | None:
    """Share of y's variance that a linear map of x recovers, relative to the share that a linear map of y itself does.

    Rows are normalized to length 1. A ridge regression is fitted on the even rows and evaluated on the odd ones: R² of x →
    y over R² of y → y, between 0 and 1. It is 1 if y is a linear function of x, and 0 if y cannot be
    predicted from x. The division corrects for the small number of images in the fit. The penalty is the one with the
    smallest leave-one-out error.

    Args:
        x, y: features [n, D] and [n, D'] of the same images by two networks, in any order of images.

    Returns:
        The share; None for fewer than 32 images, or if y is constant or cannot be predicted even from itself.

    Raises:
        InputError: other shapes, or values that are not finite.

    Shape:
        x: [n, D].
        y: [n, D'].
        output: a number.

    >>> x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    >>> round(recovered(x, x.flip(1)), 2)  # the same, in another order
    1.0
    """
    given, target = unit_vectors(x, "x").double(), unit_vectors(y, "y").double()
    if len(given) != len(target):
        raise InputError(f"x {list(x.shape)} and y {list(y.shape)} must be features of the same images.")
    if len(given) < 2 * LEAST:
        return None
    best = _explained(target, target)
    return None if best < 0.05 else min(1.0, max(0.0, _explained(given, target)) / best)


def _explained(x: Tensor, y: Tensor) -> float:
    """R² on the odd rows of a ridge regression fitted on the even ones."""
    fit_x, fit_y, mean_x, mean_y = x[::2], y[::2], x[::2].mean(0), y[::2].mean(0)
    u, s, vh = torch.linalg.svd(fit_x - mean_x, full_matrices=False)
    if float(s[0]) < 1e-9:
        return 0.0
    coordinates = u.T @ (fit_y - mean_y)

    def left_out(ridge: float) -> float:
        shrink = s.square() / (s.square() + ridge * s.square().mean())
        leverage = u.square() @ shrink + 1 / len(u)
        residual = (fit_y - mean_y) - u @ (shrink[:, None] * coordinates)
        return float((residual / (1 - leverage).clamp_min(1e-6)[:, None]).square().sum())

    ridge = min(RIDGES, key=left_out)
    weights = vh.T @ ((s / (s.square() + ridge * s.square().mean()))[:, None] * coordinates)
    residual = y[1::2] - mean_y - (x[1::2] - mean_x) @ weights
    total = float((y[1::2] - mean_y).square().sum())
    return 1 - float(residual.square().sum()) / total if total > 1e-12 else 0.0
