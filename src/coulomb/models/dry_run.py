"""Learning an encoder's output size from one forward pass that leaves no trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from coulomb.errors import InputError


def feature_dim_of(encoder: nn.Module, name: str, channels: int, size: int) -> int:
    """F of [B,F] for a batch of two blank images; buffers, modes and the RNG are put back."""
    parameter = next(iter(encoder.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    images = torch.zeros(2, channels, size, size, device=device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), frozen(encoder):
        try:
            return int(encoder(images).shape[1])
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{name} failed on a batch of shape {list(images.shape)}: {type(error).__name__}: {error}"
            ) from error


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Eval mode without gradients inside; afterwards each submodule's mode is as before, and so is every buffer.

    Eval mode alone keeps BatchNorm still; a user's module may move buffers in any mode, so they are put back.
    """
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers() if not is_lazy(buffer)]
    module.eval()
    try:
        with torch.no_grad():
            yield
            for buffer, before in buffers:
                buffer.copy_(before)
    finally:
        for part, training in modes:
            part.training = training
