"""The first thing an encoder does: bring images in [0,1] to the statistics that it was trained on."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from coulomb.errors import InputError


class Normalisation(nn.Module):
    """(x − mean) / std per channel, for x float [B,C,H,W] in [0,1]; saved with the encoder.

    ``mean=None`` and ``std=None`` leave images as they are (0 and 1). Raises `InputError` for integer images, another
    number of channels, or a std that is not positive.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        super().__init__()
        self.channels = channels
        self.register_buffer("mean", per_channel("mean", mean, channels, 0.0))
        self.register_buffer("std", per_channel("std", std, channels, 1.0))
        if not self.std.is_meta and not bool((self.std > 0).all()):
            raise InputError(f"std={std} must be positive: drop channels that are constant, or give their std as 1.")

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images, in the layout (channels-first or -last) in which they came."""
        if images.ndim != 4 or images.shape[1] != self.channels:
            raise InputError(
                f"images of shape {list(images.shape)} do not fit an encoder for [B, {self.channels}, H, W]."
            )
        if not images.is_floating_point():
            raise InputError(f"images are {images.dtype}; the encoder takes floats in [0,1]: images.float() / 255.")
        return (images - self.mean) / self.std


def per_channel(name: str, values: Sequence[float] | None, channels: int, default: float) -> Tensor:
    """The values as a [1,C,1,1] buffer."""
    numbers = [default] * channels if values is None else [float(value) for value in values]
    if len(numbers) != channels:
        raise InputError(f"{name} has {len(numbers)} values for {channels} channels: give one for each channel.")
    if not all(math.isfinite(number) for number in numbers):
        raise InputError(f"{name}={numbers} must be finite.")
    return torch.tensor(numbers, dtype=torch.float32).view(1, channels, 1, 1)
