"""Geometry of embeddings on the unit sphere: alignment, uniformity, spread, drift and modality gap."""

import math
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import unit_vectors
from coulomb.metrics.linear import linear_probe
from coulomb.similarity import Similarity


def alignment(x: Tensor, y: Tensor, alpha: float = 2.0) -> float:
    """mean_i ‖x_i − y_i‖^α of unit vectors; 0 is perfect, 2 is chance level at α = 2 (Wang and Isola, 2020).

    ``x`` and ``y`` [n,D] are embeddings of two views of the same n images; normalized here. Raises `InputError` for other
    shapes or values that are not finite.

    Shape:
        x, y: [n, D].
        output: a number.

    >>> round(alignment(torch.eye(4), torch.eye(4).roll(1, 0)), 3)  # right angles
    2.0
    """
    distances = (unit_vectors(x, "x") - unit_vectors(y, "y", like=x)).norm(dim=1)
    return float(distances.double().pow(alpha).mean())


def uniformity(x: Tensor, t: float = 2.0) -> float:
    """log mean_{i≠j} exp(−t‖x_i − x_j‖²) of unit vectors; 0 is collapse, lower is better (Wang and Isola, 2020).

    On the sphere ‖x − y‖² = 2 − 2x·y, so this is the log-sum-exp of a similarity matrix with scale 2t, minus 2t, and
    takes memory linear in n. A uniform distribution on the sphere in 128 dimensions gives −3.94 at t = 2.

    ``x`` [n,D], n ≥ 2; normalized here. Raises `InputError` for other shapes or values that are not finite.

    Shape:
        x: [n, D].
        output: a number.

    >>> abs(round(uniformity(torch.ones(10, 4)), 2))  # all equal
    0.0
    """
    points = unit_vectors(x, "x", least=2)
    with torch.no_grad():
        rows = Similarity(points, scale=2 * t).lse("others")
    pairs = len(points) * (len(points) - 1)
    return float(rows.double().logsumexp(dim=0)) - 2 * t - math.log(pairs)


def feature_std(x: Tensor) -> float:
    """√D times the standard deviation of unit vectors ``x`` [n,D], averaged over dimensions; normalized here.

    About 1 for a uniform distribution on the sphere, 0 if all vectors are equal (Chen and He, 2021). Raises `InputError`
    for other shapes or values that are not finite.

    Shape:
        x: [n, D].
        output: a number.

    >>> feature_std(torch.ones(10, 4))
    0.0
    """
    return float(unit_vectors(x, "x").double().std(dim=0, correction=0).mean()) * x.shape[1] ** 0.5


def drift(online: Tensor, momentum: Tensor) -> float:
    """1 − mean_i cos(online_i, momentum_i): 0 if the momentum encoder gives the same embeddings as the encoder.

    Takes embeddings [n,D] of the same views by both. The keys of a queue were computed by earlier momentum encoders: the
    more the two differ, the less consistent the keys are (He et al., 2020). Raises `InputError` for other shapes or
    values that are not finite.

    Shape:
        online, momentum: [n, D].
        output: a number.

    >>> drift(torch.eye(4), 3 * torch.eye(4))
    0.0
    """
    first, second = unit_vectors(online, "online"), unit_vectors(momentum, "momentum", like=online)
    return 1 - float((first * second).sum(1).double().mean())


def modality_gap(first: Tensor, second: Tensor) -> dict[str, Any]:
    """Whether two towers fill separate regions of their common space (Liang et al., 2022).

    Args:
        first: embeddings [n,D] by one tower; normalized here.
        second: embeddings [m,D] by the other.

    Returns:
        ``{"modality_gap": ‖mean of first − mean of second‖, "towers_told_apart": accuracy}``. The distance is between 0 and
        2. The accuracy is that of a linear probe that tells the towers apart, fitted on every other row and measured on the
        rest, relative to the larger side's share of the rows: 0 is chance, 1 is complete separation; None with fewer than
        4 rows on a side.

    Raises:
        InputError: widths that differ, values that are not finite.

    Shape:
        first: [n, D].
        second: [m, D].

    >>> modality_gap(torch.eye(2), -torch.eye(2))["modality_gap"]
    1.414...
    """
    a, b = unit_vectors(first, "first").double(), unit_vectors(second, "second").double()
    if a.shape[1] != b.shape[1]:
        raise InputError(f"first has {a.shape[1]} dimensions and second {b.shape[1]}: both must be in one space.")
    gap = float((a.mean(0) - b.mean(0)).norm())
    if min(len(a), len(b)) < 4:
        return {"modality_gap": gap, "towers_told_apart": None}
    labels = torch.cat([torch.zeros(len(a), dtype=torch.long), torch.ones(len(b), dtype=torch.long)])
    x = torch.cat([a, b])
    train = torch.cat([torch.arange(len(a)), torch.arange(len(b))]) % 2 == 0
    accuracy = linear_probe(x[train], labels[train], x[~train], labels[~train])["accuracy"]
    share = float(labels[~train].double().mean())
    chance = max(share, 1 - share)
    return {"modality_gap": gap, "towers_told_apart": max(0.0, (accuracy - chance) / (1 - chance))}
