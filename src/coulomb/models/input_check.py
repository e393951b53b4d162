"""A check of what a loaded encoder is called with; training does not pay for it."""

from typing import Any

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.models.encoder import Encoder

LOWEST, HIGHEST = -0.5, 1.5  # beyond these, values are clearly not in [0, 1]: 0–255, or already normalised


def check_input(encoder: Encoder, inputs: tuple[Any, ...]) -> None:
    """A forward pre-hook: refuses what is no float tensor [B, C, S, S] in [0, 1].

    Raises:
        InputError: no tensor, images of another size than the encoder's, or values clearly outside [0, 1].
    """
    images = inputs[0] if inputs else None
    remedy = "run.encode(images) prepares images of any kind"
    if not isinstance(images, Tensor):
        raise InputError(f"images: the encoder takes a tensor, got {type(images).__name__}; {remedy}")
    size = encoder.image_size
    if images.ndim == 4 and tuple(images.shape[2:]) != (size, size):
        raise InputError(
            f"images of shape {list(images.shape)}: the encoder was trained on {size}×{size} pixels; {remedy}, "
            "and coulomb.models.load_encoder(run) gives the encoder without this check"
        )
    if torch.compiler.is_compiling() or images.is_meta or not images.is_floating_point() or not images.numel():
        return
    low, high = (float(value) for value in images.detach().aminmax())
    if not (low >= LOWEST and high <= HIGHEST):
        raise InputError(
            f"images: values from {low:g} to {high:g}; the encoder takes [0, 1] and normalises by itself: divide values "
            f"0 to 255 by 255, leave out other normalisation; {remedy}"
        )
