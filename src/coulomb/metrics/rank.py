"""How many dimensions the embeddings use: effective rank, singular values, LiDAR."""

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import check_vectors

DELTA = 1e-4


def effective_rank(x: Tensor) -> float:
    """exp(−Σ p_k log p_k) with p = σ / Σσ, σ the singular values of ``x`` [n,D]: between 1 and min(n, D).

    Roy and Vetterli (2007); RankMe (Garrido et al., 2023) applies it to features. Rows are neither centered nor
    normalized; a matrix of zeros has rank 0. O(n·D·min(n,D)) time. Raises `InputError` for other shapes or values that
    are not finite.

    Shape:
        x: [n, D].
        output: a number.

    >>> round(effective_rank(torch.eye(8)), 3), round(effective_rank(torch.ones(8, 8)), 3)
    (8.0, 1.0)
    """
    sigma = singular_values(x)
    return _exp_entropy(sigma) if float(sigma[0]) > 0 else 0.0


def singular_values(x: Tensor, most: int | None = None) -> Tensor:
    """Singular values of ``x`` [n,D] divided by the largest, descending, float64 [min(n,D)], or the first ``most``.

    Rows are neither centered nor normalized; the values come from the smaller Gram matrix in fp64. A spectrum that falls
    to zero after a few values is dimensional collapse (Jing et al., 2022). Values below 1e-7 are rounding errors of the
    Gram matrix and set to 0. Raises `InputError` for other shapes or values that are not finite.

    Shape:
        x: [n, D].
        output: [min(n, D)], or [most].

    >>> singular_values(torch.diag(torch.tensor([1.0, 4.0, 2.0])))
    tensor([1.0000, 0.5000, 0.2500], dtype=torch.float64)
    """
    values = check_vectors(x, "x").double()
    gram = values.T @ values if values.shape[1] <= values.shape[0] else values @ values.T
    sigma = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)
    if float(sigma[0]) > 0:
        sigma = sigma / sigma[0]
    return sigma.masked_fill(sigma < 1e-7, 0)[:most]


def lidar(x: Tensor, delta: float = DELTA) -> float:
    """Effective rank of the between-image scatter, whitened by the within-image scatter (LiDAR; Thilak et al., 2023).

        Σ_b = mean_i (μ_i − μ)(μ_i − μ)ᵀ        μ_i: mean of image i's views; μ: mean of the μ_i
        Σ_w = mean_iv (x_iv − μ_i)(x_iv − μ_i)ᵀ + δI
        LiDAR = exp(−Σ_k p_k ln p_k), p = λ/Σλ, λ the eigenvalues of Σ_w^−½ Σ_b Σ_w^−½

    This is a linear discriminant analysis with each image as a class: the variance due to augmentation, which RankMe
    counts, is divided out. From 1 to min(n − 1, D); 0 if all images have the same embedding.

    Protocol of the paper: about n = 1000 unlabeled images with q = 50 views each by the training augmentations, the
    projector's outputs without normalization, δ = 1e-4. Values for different n, q or scale are not comparable.

    Args:
        x: [n,q,D], q ≥ 2 views of each of n ≥ 2 images.
        delta: δ of the within-image scatter; it is absolute, so the scale of ``x`` matters.

    Raises:
        InputError: another shape, values that are not finite, δ not positive.

    Shape:
        x: [n, q, D].
        output: a number.

    >>> round(lidar(torch.eye(4)[:, None].expand(4, 2, 4)), 3)  # n − 1 directions
    3.0
    """
    if x.ndim != 3 or x.shape[0] < 2 or x.shape[1] < 2:
        raise InputError(f"x must be [n, q, D], q ≥ 2 views of n ≥ 2 images, got {list(x.shape)}.")
    if not delta > 0:
        raise InputError(f"delta={delta}: must be positive.")
    n, q, d = x.shape
    views = check_vectors(x.reshape(n * q, d), "x").double().view(n, q, d)
    means = views.mean(1)
    between = means - means.mean(0)
    within = (views - means[:, None]).reshape(n * q, d)
    scatter = within.T @ within / (n * q) + delta * torch.eye(d, dtype=views.dtype, device=views.device)
    # With Σ_w = LLᵀ, L⁻¹ Σ_b L⁻ᵀ has the eigenvalues of Σ_w^−½ Σ_b Σ_w^−½: the squared singular values of L⁻¹ (μ_i − μ).
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(scatter), between.T, upper=False)
    eigenvalues = torch.linalg.svdvals(whitened).square()
    return _exp_entropy(eigenvalues) if float(eigenvalues.sum()) > 1e-24 else 0.0


def _exp_entropy(values: Tensor) -> float:
    return float(torch.special.entr(values / values.sum()).sum().exp())
