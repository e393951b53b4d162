"""Centering and PCA whitening of features in closed form, from moments that one pass accumulates."""

import torch
from torch import Tensor

from coulomb.ground.errors import InputError

RANK = 1e-10  # of the largest variance: directions below it are rounding errors of float32 features


class Moments:
    """Count N, mean μ [F] and scatter matrix S = Σ (x − μ)(x − μ)ᵀ [F, F] of rows x, in float64.

    Batches are added by the update of Chan, Golub and LeVeque (1983), with m rows of mean μ' and scatter S'::

        S ← S + S' + (μ' − μ)(μ' − μ)ᵀ · N·m / (N + m)
        μ ← μ + (μ' − μ) · m / (N + m)
        N ← N + m

    Memory is O(F²) for any number of rows, and the result does not depend on how they are divided, up to rounding.

    Args:
        dim: F.
    """

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.mean = torch.zeros(dim, dtype=torch.float64)
        self.scatter = torch.zeros(dim, dim, dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Adds rows [m, F].

        Raises:
            InputError: a value is NaN or infinite.
        """
        if not len(rows):
            return
        x = rows.detach().to("cpu", torch.float64)
        if not bool(x.isfinite().all()):
            raise InputError(
                f"features: {int((~x.isfinite()).any(1).sum())} of {len(x)} rows have values that are NaN or infinite; "
                "check the weights of the encoder"
            )
        total, mean = self.count + len(x), x.mean(0)
        shift, centered = mean - self.mean, x - mean
        self.scatter += centered.T @ centered + torch.outer(shift, shift) * (self.count * len(x) / total)
        self.mean += shift * (len(x) / total)
        self.count = total


def whitening(moments: Moments, dim: int, power: float = 1.0) -> tuple[Tensor, Tensor]:
    """Returns the weight W [k, F] and bias b [k], in float64, of the map that centers and whitens features.

    ::

        C = S / (N − 1) = V diag(λ) Vᵀ,   λ₁ ≥ λ₂ ≥ …
        W = diag(λᵢ)^(−p/2) · Vₖᵀ,   b = −W μ,   i = 1 … k

    With p = 1 the outputs of the N rows have mean 0 and covariance I, as with scikit-learn's ``PCA(k, whiten=True)``; with
    p < 1 the variances are λ^(1 − p). The sign of each row is such that its largest entry is positive.

    Args:
        moments: moments of the features.
        dim: the largest k; k is smaller if the covariance has a smaller rank, at most min(F, N − 1).
        power: p in [0, 1], which limits the gain in directions of small variance; 0 is PCA without whitening.

    Raises:
        InputError: ``dim`` or ``power`` is out of range, or all features are equal.
    """
    if dim < 1 or not 0 <= power <= 1:
        raise InputError(f"dim={dim}, power={power}: must be at least 1, and from 0 to 1")
    variances, vectors = torch.linalg.eigh(moments.scatter / max(moments.count - 1, 1))
    variances, vectors = variances.flip(0), vectors.flip(1)
    rank = min(int((variances > RANK * variances[0]).sum()), moments.count - 1)
    if rank < 1 or float(variances[0]) <= 0:
        raise InputError(
            f"features: all {moments.count} images have equal features, so there is nothing to whiten; "
            "add images, or take another encoder"
        )
    k = min(dim, rank)
    directions = vectors[:, :k].T
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    weight = directions * largest.sign() * variances[:k, None] ** (-power / 2)
    return weight, -weight @ moments.mean
