"""Do embeddings use the whole sphere?"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.diagnostics.vectors import matrix
from coulomb.similarity import Similarity


def uniformity(x: Tensor, t: float = 2.0) -> float:
    """log mean_{i≠j} exp(−t‖x_i − x_j‖²) of unit vectors; 0 is collapse, lower is better (Wang and Isola, 2020).

    On the sphere ‖x − y‖² = 2 − 2x·y, so this is the log-sum-exp of a similarity matrix with scale 2t, less 2t, and
    takes memory linear in n. Points spread evenly over the sphere in 128 dimensions give −3.94 at t = 2.

    ``x`` [n,D], n ≥ 2; normalised here. Raises `InputError` for other shapes or values that are not finite.
    """
    points = functional.normalize(matrix(x, "x", least=2), dim=1)
    with torch.no_grad():
        rows = Similarity(points, scale=2 * t).lse("others")
    pairs = len(points) * (len(points) - 1)
    return float(rows.double().logsumexp(dim=0)) - 2 * t - math.log(pairs)
