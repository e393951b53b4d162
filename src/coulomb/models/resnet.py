"""Residual networks (He et al., 2016), with the small-image stem that contrastive papers use on CIFAR."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

SMALL_IMAGE = 64  # pixels; up to here a 7×7 stride-2 stem and a max-pool throw away most of the picture


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the picture's size (up to its stride); no bias, as a BatchNorm follows."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """x + BN(conv3×3(ReLU(BN(conv3×3(x))))), then ReLU: the block of ResNet-18 and -34."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The BatchNorm that closes the residual branch."""
        return self.bn2

    def forward(self, x: Tensor) -> Tensor:
        """[B,C,h,w] → [B,outputs,h/stride,w/stride]."""
        branch = torch.relu_(self.bn1(self.conv1(x)))
        return torch.relu_(self.bn2(self.conv2(branch)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride, as in "ResNet v1.5"), 1×1 with four times the width: the block of ResNet-50."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The BatchNorm that closes the residual branch."""
        return self.bn3

    def forward(self, x: Tensor) -> Tensor:
        """[B,C,h,w] → [B,outputs,h/stride,w/stride]."""
        branch = torch.relu_(self.bn1(self.conv1(x)))
        branch = torch.relu_(self.bn2(self.conv2(branch)))
        return torch.relu_(self.bn3(self.conv3(branch)) + self.shortcut(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity where shapes agree, else a 1×1 convolution with BatchNorm."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A residual network without its classifier: [B,C,H,W] → [B, 8·width·expansion], the mean over the last map.

    ``small_stem`` (3×3, no max-pool) is for images up to 64 pixels, as on CIFAR in SimCLR, MoCo and SupCon; otherwise
    7×7 with stride 2 and a 3×3 max-pool. ``zero_init_residual`` starts every residual branch at zero (the scale of
    its last BatchNorm): the authors of SimCLR and SimSiam do, those of MoCo and SupCon do not.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        *,
        channels: int,
        width: int,
        small_stem: bool,
        zero_init_residual: bool,
    ) -> None:
        super().__init__()
        layers = [
            convolution(channels, width, 3) if small_stem else convolution(channels, width, 7, 2),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        if not small_stem:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        self.stem = nn.Sequential(*layers)
        inputs = width
        stages = []
        for stage, depth in enumerate(depths):
            blocks = []
            for place in range(depth):
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(block(inputs, width * 2**stage, stride))
                inputs = width * 2**stage * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.feature_dim = inputs
        self.initialise(zero_init_residual)

    def initialise(self, zero_init_residual: bool) -> None:
        """He's normal initialisation by fan-out; BatchNorm at one and zero."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, BasicBlock | Bottleneck):
                    nn.init.zeros_(module.last_norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Features [B,F] of normalised images [B,C,H,W]."""
        return self.stages(self.stem(x)).mean(dim=(2, 3))


def resnet(
    block: type[BasicBlock] | type[Bottleneck],
    depths: tuple[int, ...],
    *,
    channels: int,
    image_size: int,
    width: int = 64,
    small_stem: bool | None = None,
    zero_init_residual: bool = True,
) -> ResNet:
    """A ResNet for images of ``image_size``; ``small_stem=None`` takes the small stem up to 64 pixels."""
    small = image_size <= SMALL_IMAGE if small_stem is None else small_stem
    return ResNet(
        block, depths, channels=channels, width=width, small_stem=small, zero_init_residual=zero_init_residual
    )


resnet10: Callable[..., ResNet] = functools.partial(resnet, BasicBlock, (1, 1, 1, 1))
resnet18: Callable[..., ResNet] = functools.partial(resnet, BasicBlock, (2, 2, 2, 2))
resnet34: Callable[..., ResNet] = functools.partial(resnet, BasicBlock, (3, 4, 6, 3))
resnet50: Callable[..., ResNet] = functools.partial(resnet, Bottleneck, (3, 4, 6, 3))
