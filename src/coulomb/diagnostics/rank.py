"""How many dimensions do features really use?"""

import torch
from torch import Tensor

from coulomb.diagnostics.vectors import matrix


def effective_rank(x: Tensor) -> float:
    """exp(−Σ p_k log p_k) with p = σ / Σσ, σ the singular values of ``x`` [n,D]: between 1 and min(n, D).

    Roy and Vetterli (2007); as RankMe (Garrido et al., 2023) for features, not centred and not normalised by rows. All
    zeros have rank 0. Computed from the smaller Gram matrix in fp64, O(n·D·min(n,D)) time. Raises `InputError` for
    other shapes or values that are not finite.
    """
    values = matrix(x, "x").double()
    gram = values.T @ values if values.shape[1] <= values.shape[0] else values @ values.T
    sigma = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    if not float(sigma.sum()) > 0:
        return 0.0
    # Rounding of the Gram matrix leaves roots of about 1e-8 where the singular value is zero.
    sigma = sigma[sigma > 1e-7 * sigma.max()]
    shares = sigma / sigma.sum()
    return float(torch.exp(-(shares * shares.log()).sum()))
