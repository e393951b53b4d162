"""Batch norms folded into the convolutions before them, which makes inference faster."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.nn.utils.parametrize import is_parametrized

from coulomb.metrics.features import frozen
from coulomb.models import Encoder
from coulomb.randomness import generator

CLOSE = 1e-4  # relative; rounding changes features by about 1e-6


def folded(encoder: Encoder) -> Encoder:
    """Returns a copy of an encoder, in eval mode, without the batch norms that follow a convolution.

    In eval mode a batch norm multiplies each channel by γ/√(σ² + ε) and adds a constant, which weight and bias of the
    convolution can do as well. Features are the same up to rounding; `coulomb index` with lite0 is a fifth faster on a CPU.

    A batch norm follows a convolution if its input in a forward pass is the output of the convolution. If features of two
    random images then differ, because the output or the convolution is used elsewhere, too, the encoder itself is returned.
    """
    size, first = encoder.image_size, next(encoder.parameters())
    images = torch.rand(2, encoder.channels, size, size, generator=generator(0, "folding")).to(first)
    quick = deepcopy(encoder).eval()
    with frozen(encoder):
        for convolution, norm in list(_pairs(quick, images)):
            assert norm.running_mean is not None and norm.running_var is not None
            weight, bias = fuse_conv_bn_weights(
                convolution.weight, convolution.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )  # fmt: skip
            convolution.weight, convolution.bias = weight, bias
            for parent in quick.modules():
                for name, child in parent.named_children():
                    if child is norm:
                        setattr(parent, name, nn.Identity())
        expected = encoder(images)
        return quick if torch.dist(quick(images), expected) <= CLOSE * expected.norm() else encoder


def _pairs(encoder: Encoder, images: Tensor) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Yields each convolution whose output is the input of a batch norm, and that batch norm."""
    outputs: list[tuple[nn.Conv2d, Tensor]] = []
    inputs: list[tuple[nn.BatchNorm2d, Tensor]] = []
    hooks = []
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d) and not is_parametrized(module):
            hooks.append(module.register_forward_hook(lambda module, _, output: outputs.append((module, output))))
        elif type(module) is nn.BatchNorm2d and module.running_mean is not None:  # others may do more
            hooks.append(module.register_forward_pre_hook(lambda module, args: inputs.append((module, args[0]))))
    encoder(images)
    for hook in hooks:
        hook.remove()
    for norm, taken in inputs:
        for convolution, output in outputs:
            if output is taken:
                yield convolution, norm
