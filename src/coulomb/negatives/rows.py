"""Checks of the rows and integers that a queue and a memory bank receive."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.ground.checked import ZERO, checked_norms


def unit_rows(name: str, rows: Tensor, dim: int) -> Tensor:
    """Returns ``rows`` [B, dim] in fp32, normalized and detached; zero rows stay zero, with a `CoulombWarning`.

    Raises:
        TypeError, ValueError: the dtype is not floating, the shape differs, or values are NaN or infinite.
    """
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {getattr(rows, 'dtype', type(rows).__name__)}")
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ValueError(f"{name} must have shape [B, {dim}], got {tuple(rows.shape)}")
    rows = rows.detach().float()
    checked_norms(torch.linalg.vector_norm(rows, dim=1), (name,), True, "")
    return normalize(rows, dim=1, eps=ZERO)


def integers(name: str, values: Tensor, rows: int | None = None) -> Tensor:
    """Returns ``values`` as a detached int64 tensor, of shape [rows] if ``rows`` is given.

    Raises:
        TypeError, ValueError: the dtype is not an integer type, or the shape differs.
    """
    if not isinstance(values, Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        raise TypeError(f"{name} must be an integer tensor, got {getattr(values, 'dtype', type(values).__name__)}")
    if rows is not None and values.shape != (rows,):
        raise ValueError(f"{name} must have shape [{rows}], one for each row, got {tuple(values.shape)}")
    return values.detach().long()
