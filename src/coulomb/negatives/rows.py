"""What a queue and a bank ask of what they are handed: unit rows, integers of the right length, all processes' share."""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.checked import ZERO, checked_norms


def unit_rows(name: str, rows: Tensor, dim: int) -> Tensor:
    """[B, dim] in fp32, of unit length, without a gradient; zero rows stay so and are counted in a `CoulombWarning`.

    Raises:
        TypeError, ValueError: not floating, another shape, NaN or infinite values.
    """
    if not isinstance(rows, Tensor) or not rows.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {getattr(rows, 'dtype', type(rows).__name__)}")
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise ValueError(f"{name} must have shape [B, {dim}], got {tuple(rows.shape)}")
    rows = rows.detach().float()
    norm = torch.linalg.vector_norm(rows, dim=1)
    checked_norms(norm, (name,), True, "")
    return normalize(rows, dim=1, eps=ZERO)


def integers(name: str, values: Tensor | None, like: Tensor) -> Tensor:
    """One integer for each row of ``like``, −1 (unknown) where there are none."""
    if values is None:
        return torch.full((len(like),), -1, dtype=torch.long, device=like.device)
    if not isinstance(values, Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        raise TypeError(f"{name} must be an integer tensor, got {getattr(values, 'dtype', type(values).__name__)}")
    if values.shape != (len(like),):
        raise ValueError(f"{name} must have shape [{len(like)}], one for each row, got {tuple(values.shape)}")
    return values.detach().to(like.device, torch.long)


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for ``seed``."""
    made = torch.Generator(device=device)
    made.manual_seed(seed)
    return made


def slots_in(name: str, index: Tensor, slots: int) -> Tensor:
    """An integer tensor with values from 0 to ``slots`` − 1; else an error naming it."""
    if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
        raise TypeError(f"{name} must be an integer tensor, got {getattr(index, 'dtype', type(index).__name__)}")
    if index.numel():
        least, most = (int(value) for value in index.aminmax())
        if least < 0 or most >= slots:
            raise ValueError(f"{name} must be from 0 to {slots - 1}, got {least}…{most}")
    return index.long()


def cosine_to_one(start: float, progress: float) -> float:
    """1 − (1 − start)·(cos(π·progress) + 1)/2: from ``start`` at 0 to 1 at 1."""
    return 1 - (1 - start) * (math.cos(math.pi * progress) + 1) / 2
