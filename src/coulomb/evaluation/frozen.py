"""Frozen means frozen: a network that is only looked at comes back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Within it, ``modules`` are in eval mode and nothing records gradients; every submodule's own mode is put back.

    In eval mode BatchNorm neither uses nor moves batch statistics, and dropout is off. Modes are put back one by one, since
    ``module.train()`` would also wake the layers that their owner had put to sleep.
    """
    modes = [(part, part.training) for module in modules for part in module.modules()]
    for module in modules:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training
