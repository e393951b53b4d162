"""Checks of the arguments of `Similarity`."""

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN, readable
from coulomb.similarity.guide import Guide
from coulomb.similarity.tiles import below


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


def checked_guide(guide: Guide | None, shape: tuple[int, int], like: Tensor, dtype: torch.dtype) -> Guide | None:
    """Returns a guide in ``dtype``, without gradient. Its limits are lowered by the rounding of a product, for ties."""
    if guide is None:
        return None
    if not isinstance(guide, Guide):
        raise TypeError(f"guide must be a coulomb.similarity.Guide, got {type(guide).__name__}")
    sides = (("guide.queries_NE", guide.queries_NE, shape[0]), ("guide.keys_ME", guide.keys, shape[1]))
    for name, value, length in sides:
        require_matrix(name, value)
        require_device(name, value, like)
        if len(value) != length:
            raise ValueError(f"{name} must have {length} rows, got {len(value)}")
    if guide.keys.shape[1] != guide.queries_NE.shape[1]:
        widths = guide.keys.shape[1], guide.queries_NE.shape[1]
        raise ValueError(f"guide.keys_ME has {widths[0]} dimensions, guide.queries_NE has {widths[1]}")
    if guide.limit_N.shape != shape[:1]:
        raise ValueError(f"guide.limit_N must have shape [{shape[0]}], got {tuple(guide.limit_N.shape)}")
    require_device("guide.limit_N", guide.limit_N, like)
    queries_NE, limit_N = guide.queries_NE.detach().to(dtype), guide.limit_N.detach().to(dtype)
    keys_ME = None if guide.keys_ME is None else guide.keys_ME.detach().to(dtype)
    lengths = [
        torch.linalg.vector_norm(side, dim=1) for side in (queries_NE, queries_NE if keys_ME is None else keys_ME)
    ]
    bound = lengths[0] * lengths[1].amax() if shape[1] else lengths[0]
    return Guide(queries_NE, keys_ME, below(limit_N, bound))


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
