"""What callers hand over, checked and brought to floats in [0, 1]."""

import torch
from torch import Tensor

from coulomb.errors import InputError


def check_canvas(canvas: Tensor, channels: int | None) -> None:
    """Raise InputError unless ``canvas`` is [B, C, H, W], B ≥ 1, C = ``channels``, uint8 or floats in [0, 1]."""
    if not isinstance(canvas, Tensor):
        raise InputError(f"canvas is a {type(canvas).__name__}: give a torch tensor [B, C, H, W]")
    if canvas.ndim != 4 or canvas.numel() == 0:
        raise InputError(f"canvas has shape {tuple(canvas.shape)}: give at least one image as [B, C, H, W]")
    if channels is not None and canvas.shape[1] != channels:
        raise InputError(
            f"canvas has {canvas.shape[1]} channels but these views were made for {channels}: "
            f"make_views(..., channels={canvas.shape[1]})"
        )
    if canvas.dtype == torch.uint8:
        return
    if not canvas.is_floating_point():
        raise InputError(f"canvas is {canvas.dtype}: give uint8 in 0…255 or floats in [0, 1]")
    low, high = canvas.aminmax()
    if not (low >= 0 and high <= 1):  # false for NaN too
        raise InputError(f"canvas ranges from {low:g} to {high:g}: floats must lie in [0, 1]; divide by the full range")


def check_aspect(aspect: Tensor | None, canvas: Tensor) -> Tensor:
    """Original width/height per sample, float32 [B] on the CPU; None: the canvas is not squashed."""
    batch, _, height, width = canvas.shape
    if aspect is None:
        return torch.full((batch,), width / height, dtype=torch.float32)
    if not isinstance(aspect, Tensor) or aspect.shape != (batch,):
        shape = tuple(aspect.shape) if isinstance(aspect, Tensor) else type(aspect).__name__
        raise InputError(f"aspect is {shape}: give a tensor of one width/height per image, shape ({batch},)")
    aspect = aspect.detach().to("cpu", torch.float32)
    if not bool((torch.isfinite(aspect) & (aspect > 0)).all()):
        raise InputError(f"aspect has values from {aspect.min():g} to {aspect.max():g}: width/height must be above 0")
    return aspect


def to_float(canvas: Tensor) -> Tensor:
    """float32 in [0, 1]: uint8 ÷ 255, floats as they are; never a view of a uint8 canvas."""
    return canvas.to(torch.float32).div_(255) if canvas.dtype == torch.uint8 else canvas.to(torch.float32)
