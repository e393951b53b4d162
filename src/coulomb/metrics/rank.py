"""Effective rank, singular values and LiDAR: how many dimensions the embeddings use."""

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.metrics.inputs import check_vectors


def effective_rank(x: Tensor) -> float:
    """exp(−Σ p_k log p_k) with p = σ / Σσ, σ the singular values of ``x`` [n,D]: between 1 and min(n, D).

    Roy and Vetterli (2007); as RankMe (Garrido et al., 2023) for features, not centred and not normalised by rows. All
    zeros have rank 0. Computed from the smaller Gram matrix in fp64, O(n·D·min(n,D)) time. Raises `InputError` for
    other shapes or values that are not finite.
    """
    values = check_vectors(x, "x").double()
    gram = values.T @ values if values.shape[1] <= values.shape[0] else values @ values.T
    sigma = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    if not float(sigma.sum()) > 0:
        return 0.0
    # Rounding of the Gram matrix leaves roots of about 1e-8 where the singular value is zero.
    sigma = sigma[sigma > 1e-7 * sigma.max()]
    shares = sigma / sigma.sum()
    return float(torch.exp(-(shares * shares.log()).sum()))


def singular_values(x: Tensor, most: int | None = None) -> Tensor:
    """Singular values of ``x`` [n,D] over the largest, descending, float64 [min(n,D)], or the first ``most`` of them.

    As for `effective_rank`: not centred, rows as they are, from the smaller Gram matrix in fp64. A spectrum that falls to
    nothing after few values is dimensional collapse (Jing et al., 2022). All zeros stay zeros. Values below 1e-7 are
    rounding, and set to 0. Raises `InputError` for other shapes or values that are not finite.
    """
    values = check_vectors(x, "x").double()
    gram = values.T @ values if values.shape[1] <= values.shape[0] else values @ values.T
    sigma = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)
    if float(sigma[0]) > 0:
        sigma = sigma / sigma[0]
    return sigma.masked_fill(sigma < 1e-7, 0)[:most]


DELTA = 1e-4


def lidar(x: Tensor, delta: float = DELTA) -> float:
    """Effective rank of the between-image scatter, whitened by the within-image scatter (LiDAR; Thilak et al., 2023).

        Σ_b = mean_i (μ_i − μ)(μ_i − μ)ᵀ        μ_i: mean of image i's views; μ: mean of the μ_i
        Σ_w = mean_iv (x_iv − μ_i)(x_iv − μ_i)ᵀ + δI
        LiDAR = exp(−Σ_k p_k ln p_k), p = λ/Σλ, λ the eigenvalues of Σ_w^−½ Σ_b Σ_w^−½

    Each image is a class of its own in a linear discriminant analysis: what augmentation moves is divided out, which
    RankMe counts. From 1 to min(n − 1, D); 0 when all images are alike.

    Protocol of the paper: about n = 1000 unlabelled images with q = 50 views each by the training's augmentations, the
    projector's outputs as they are (not normalised), δ = 1e-4. Figures of different n, q or scale do not compare.

    Args:
        x: [n,q,D], q views of each of n images; n, q ≥ 2.
        delta: δ of the within-image scatter; it is absolute, so the scale of ``x`` matters.

    Raises:
        InputError: another shape, values that are not finite, δ not positive.
    """
    if x.ndim != 3 or x.shape[0] < 2 or x.shape[1] < 2:
        raise InputError(f"x must be [n, q, D], q ≥ 2 views of n ≥ 2 images, got {list(x.shape)}")
    if not delta > 0:
        raise InputError(f"delta={delta}: must be positive")
    n, q, d = x.shape
    views = check_vectors(x.reshape(n * q, d), "x").double().view(n, q, d)
    means = views.mean(1)
    apart = means - means.mean(0)
    within = (views - means[:, None]).reshape(n * q, d)
    scatter = within.T @ within / (n * q) + delta * torch.eye(d, dtype=views.dtype, device=views.device)
    # L⁻¹ Σ_b L⁻ᵀ with Σ_w = LLᵀ has the eigenvalues of Σ_w^−½ Σ_b Σ_w^−½: the squared singular values of L⁻¹ (μ_i − μ).
    whitened = torch.linalg.solve_triangular(torch.linalg.cholesky(scatter), apart.T, upper=False)
    eigenvalues = torch.linalg.svdvals(whitened).square()
    total = float(eigenvalues.sum())
    if not total > 1e-24:
        return 0.0
    return float(torch.special.entr(eigenvalues / total).sum().exp())
