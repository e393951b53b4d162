"""What every diagnostic takes: a matrix of finite vectors."""

import torch
from torch import Tensor

from coulomb.errors import InputError


def matrix(x: Tensor, name: str, *, least: int = 1, like: Tensor | None = None) -> Tensor:
    """``x`` as float32 or float64 [n,D] without gradient, checked."""
    if x.ndim != 2 or len(x) < least or not x.shape[1] or not x.is_floating_point():
        raise InputError(f"{name} must be floating vectors [n, D] with n ≥ {least}, got {x.dtype} {list(x.shape)}.")
    if like is not None and x.shape != like.shape:
        raise InputError(f"{name} {list(x.shape)} must have the shape of the other view's, {list(like.shape)}.")
    if not bool(x.isfinite().all()):
        raise InputError(f"{name} has NaN or infinite values: the encoder has diverged.")
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))
