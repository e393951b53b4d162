"""Alignment, uniformity, spread and drift of embeddings on the unit sphere."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.metrics.cosines import unit_vectors
from coulomb.metrics.inputs import check_vectors
from coulomb.similarity import Similarity


def alignment(x: Tensor, y: Tensor, alpha: float = 2.0) -> float:
    """mean_i ‖x_i − y_i‖^α of unit vectors; 0 is perfect, 2 is chance at α = 2 (Wang and Isola, 2020).

    ``x`` and ``y`` [n,D] are the embeddings of two views of the same n images; normalised here. Raises `InputError` for
    other shapes or values that are not finite.
    """
    first, second = check_vectors(x, "x"), check_vectors(y, "y", like=x)
    distances = (functional.normalize(first, dim=1) - functional.normalize(second, dim=1)).norm(dim=1)
    return float(distances.double().pow(alpha).mean())


def uniformity(x: Tensor, t: float = 2.0) -> float:
    """log mean_{i≠j} exp(−t‖x_i − x_j‖²) of unit vectors; 0 is collapse, lower is better (Wang and Isola, 2020).

    On the sphere ‖x − y‖² = 2 − 2x·y, so this is the log-sum-exp of a similarity matrix with scale 2t, less 2t, and
    takes memory linear in n. Points spread evenly over the sphere in 128 dimensions give −3.94 at t = 2.

    ``x`` [n,D], n ≥ 2; normalised here. Raises `InputError` for other shapes or values that are not finite.
    """
    points = functional.normalize(check_vectors(x, "x", least=2), dim=1)
    with torch.no_grad():
        rows = Similarity(points, scale=2 * t).lse("others")
    pairs = len(points) * (len(points) - 1)
    return float(rows.double().logsumexp(dim=0)) - 2 * t - math.log(pairs)


def feature_std(x: Tensor) -> float:
    """√D times the mean over dimensions of the standard deviation of unit vectors ``x`` [n,D]; normalised here.

    About 1 when they point everywhere alike, 0 when they are all the same (Chen and He, 2021). Raises `InputError` for
    other shapes or values that are not finite.
    """
    unit = functional.normalize(check_vectors(x, "x"), dim=1)
    return float(unit.double().std(dim=0, correction=0).mean()) * x.shape[1] ** 0.5


def drift(online: Tensor, momentum: Tensor) -> float:
    """1 − mean_i cos(online_i, momentum_i): 0 where the momentum encoder says what the encoder says.

    Embeddings [n,D] of the same views by both. A queue's keys were made by momentum encoders of the past: the more the
    two differ, the less consistent the keys are (He et al., 2020). Raises `InputError` for other shapes or values that are
    not finite.
    """
    first, second = unit_vectors(online, "online"), unit_vectors(momentum, "momentum", like=online)
    return 1 - float((first * second).sum(1).double().mean())
