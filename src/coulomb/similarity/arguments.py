"""Checks of the arguments of `Similarity`."""

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN, readable


def require_matrix(name: str, value: Tensor) -> None:
    """Raises unless ``value`` is a floating tensor with two dimensions."""
    if value.ndim != 2:
        raise ValueError(f"{name} must be a matrix (2 dimensions), got shape {tuple(value.shape)}")
    if not value.is_floating_point():
        raise TypeError(f"{name} must be floating, got {value.dtype}")


def require_device(name: str, value: Tensor, like: Tensor) -> None:
    """Raises unless ``value`` is on the device of ``like``."""
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device}, queries_ND on {like.device}")


def checked_ids(name: str, ids: Tensor | None, length: int, like: Tensor) -> Tensor | None:
    """Returns ids as int64, [length] or, several per row, [length, C]: integers from 0, or −1 for unknown.

    Values are checked only if they are `readable`.
    """
    if ids is None:
        return None
    if not isinstance(ids, Tensor) or ids.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense integer tensor, got {getattr(ids, 'layout', type(ids).__name__)}")
    if ids.ndim not in (1, 2) or len(ids) != length or (ids.ndim == 2 and ids.shape[1] == 0):
        raise ValueError(f"{name} must have shape [{length}] or [{length}, C], got {tuple(ids.shape)}")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {ids.dtype}")
    require_device(name, ids, like)
    if length and readable(ids) and int(ids.min()) < UNKNOWN:
        raise ValueError(f"{name} must be ids from 0, or −1 for unknown; got {int(ids.min())}")
    ids = ids.long()
    return ids[:, 0] if ids.ndim == 2 and ids.shape[1] == 1 else ids


def checked_mask(mask: Tensor, shape: tuple[int, int], like: Tensor) -> Tensor:
    """Returns a mask: boolean, or finite non-negative weights. Values are checked only if they are `readable`."""
    if mask.shape != shape:
        raise ValueError(f"the mask must have shape {list(shape)}, got {tuple(mask.shape)}")
    require_device("the mask", mask, like)
    if mask.dtype == torch.bool:
        return mask
    if mask.numel() and readable(mask) and not (mask.min() >= 0 and mask.max() < torch.inf):
        raise ValueError("the mask's weights must be finite and not negative")
    return mask.detach()
