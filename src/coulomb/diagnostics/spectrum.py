"""Which share of the space do embeddings use, direction by direction?"""

import torch
from torch import Tensor

from coulomb.diagnostics.vectors import matrix


def singular_values(x: Tensor, most: int | None = None) -> Tensor:
    """Singular values of ``x`` [n,D] over the largest, descending, float64 [min(n,D)], or the first ``most`` of them.

    As for `effective_rank`: not centred, rows as they are, from the smaller Gram matrix in fp64. A spectrum that falls to
    nothing after few values is dimensional collapse (Jing et al., 2022). All zeros stay zeros. Values below 1e-7 are
    rounding, and set to 0. Raises `InputError` for other shapes or values that are not finite.
    """
    values = matrix(x, "x").double()
    gram = values.T @ values if values.shape[1] <= values.shape[0] else values @ values.T
    sigma = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt().flip(0)
    if float(sigma[0]) > 0:
        sigma = sigma / sigma[0]
    return sigma.masked_fill(sigma < 1e-7, 0)[:most]
