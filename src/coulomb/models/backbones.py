"""Built-in backbones: ResNets, a small convolutional network, a small vision transformer."""

import functools
import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.models.lite0 import Lite0, Lite0Stages

SMALL_IMAGE = 64  # pixels; up to this size, a 7×7 stride-2 stem and a max-pool discard most of the image


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Convolution with padding that keeps the image size (up to its stride), without bias because a BatchNorm follows."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """The block of ResNet-18 and -34: x + BN(conv3×3(ReLU(BN(conv3×3(x))))), then ReLU."""

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
        """Maps [B, C, h, w] to [B, outputs, h/stride, w/stride]."""
        branch = torch.relu_(self.bn1(self.conv1(x)))
        return torch.relu_(self.bn2(self.conv2(branch)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """The block of ResNet-50: 1×1, 3×3 (with the stride, as in ResNet v1.5), 1×1 with four times the width."""

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
        """Maps [B, C, h, w] to [B, outputs, h/stride, w/stride]."""
        branch = torch.relu_(self.bn1(self.conv1(x)))
        branch = torch.relu_(self.bn2(self.conv2(branch)))
        return torch.relu_(self.bn3(self.conv3(branch)) + self.shortcut(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Returns the identity if shapes agree, else a 1×1 convolution with BatchNorm."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


NORMS = ("batch", "group")


def require_norm(name: str, norm: object) -> None:
    """Raises `InputError` unless ``norm`` is ``"batch"`` or ``"group"``."""
    if norm not in NORMS:
        raise InputError(f"norm={norm!r} of {name}: must be one of {', '.join(NORMS)}")


def use_group_norm(network: nn.Module) -> None:
    """Replaces batch norms by group norms with their scales and shifts, in place (Wu & He, 2018).

    Features of an image then depend on no other image of the batch. There are 32 groups as in the paper, or fewer, so that a
    group has at least two channels.
    """
    for name, part in list(network.named_modules()):
        if isinstance(part, nn.BatchNorm2d):
            channels = part.num_features
            groups = next((groups for groups in (32, 16, 8, 4, 2) if channels % (2 * groups) == 0), 1)
            norm = nn.GroupNorm(groups, channels)
            norm.weight, norm.bias = part.weight, part.bias
            parent, _, place = name.rpartition(".")
            setattr(network.get_submodule(parent), place, norm)


class ResNet(nn.Module):
    """Residual network (He et al., 2016) without its classifier: [B, C, H, W] → [B, 8·width·expansion].

    Features are the mean of the last map.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: blocks per stage.
        channels: C.
        width: channels of the first stage.
        small_stem: 3×3 convolution without max-pool, for images up to 64 pixels, as in SimCLR, MoCo and SupCon on CIFAR;
            otherwise 7×7 with stride 2 and a 3×3 max-pool.
        zero_init_residual: initialize the scale of the last BatchNorm of every residual branch to zero, as the authors of
            SimCLR and SimSiam do and the authors of MoCo and SupCon do not.
        norm: ``"batch"``, or ``"group"``, see `use_group_norm`.
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
        norm: str = "batch",
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
        self.initialize(zero_init_residual)
        if norm == "group":
            use_group_norm(self)

    def initialize(self, zero_init_residual: bool) -> None:
        """Initializes convolutions by He's normal distribution (fan-out); BatchNorm has scale 1 and shift 0."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, BasicBlock | Bottleneck):
                    nn.init.zeros_(module.last_norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Returns features [B, F] of normalized images [B, C, H, W]."""
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
    norm: str = "batch",
) -> ResNet:
    """Returns a ResNet for images of ``image_size``; by default with the small stem up to 64 pixels."""
    small = image_size <= SMALL_IMAGE if small_stem is None else small_stem
    return ResNet(
        block,
        depths,
        channels=channels,
        width=width,
        small_stem=small,
        zero_init_residual=zero_init_residual,
        norm=norm,
    )


resnet10: Callable[..., ResNet] = functools.partial(resnet, BasicBlock, (1, 1, 1, 1))
resnet18: Callable[..., ResNet] = functools.partial(resnet, BasicBlock, (2, 2, 2, 2))
resnet34: Callable[..., ResNet] = functools.partial(resnet, BasicBlock, (3, 4, 6, 3))
resnet50: Callable[..., ResNet] = functools.partial(resnet, Bottleneck, (3, 4, 6, 3))


LARGEST_MAP = 16  # pixels; larger images are first halved, so that they cost no more than small ones


class ConvNet(nn.Module):
    """Plain convolutional network for small images and CPUs: [B, C, H, W] → [B, width·2^(stages−1)].

    Each stage has ``depth`` layers of conv3×3–BN–ReLU; between stages the map halves and the width doubles, by default
    32→64→128→256. Features are the mean of the last map. Images above 16 pixels are first halved by stride-2
    convolutions of the first width until the map has at most 16 pixels. ``norm="group"``: see `use_group_norm`.

    With ``pool`` (``convnet-pool``), the first convolution is the first stage, the second stage keeps the size of the map, and
    max-pooling halves it before each later stage, so that convolutions see larger maps: 2.3 times the work for images of
    32 pixels, and better features in the same time on CIFAR-10.
    """

    def __init__(
        self,
        *,
        channels: int,
        image_size: int,
        width: int = 32,
        stages: int = 4,
        depth: int = 1,
        norm: str = "batch",
        pool: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs, size = channels, image_size

        def add(outputs: int, stride: int) -> None:
            nonlocal inputs, size
            layers.extend(
                [convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)],
            )
            inputs, size = outputs, -(-size // stride)

        while size > LARGEST_MAP:
            add(width, 2)
        for stage in range(stages):
            if pool and stage > 1:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            if not (pool and stage == 0 and layers):
                add(width * 2**stage, 2 if stage and not pool else 1)
            for _ in range(depth - 1):
                add(width * 2**stage, 1)
        self.layers = nn.Sequential(*layers)
        self.feature_dim = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if norm == "group":
            use_group_norm(self)

    def forward(self, x: Tensor) -> Tensor:
        """Returns features [B, F] of normalized images [B, C, H, W]."""
        return self.layers(x).mean(dim=(2, 3))


def patch_size(image_size: int) -> int:
    """Returns 16 from 128 pixels on, 8 from 64, 4 from 24, else 2: 49 to 256 patches for the usual sizes."""
    for least, patch in ((128, 16), (64, 8), (24, 4)):
        if image_size >= least:
            return patch
    return 2


class Block(nn.Module):
    """Transformer block: x + attention(LN(x)), then x + MLP(LN(x)) with GELU and four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens [B, T, width] to [B, T, width]."""
        batch, tokens, width = x.shape
        packed = self.query_key_value(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.mix(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Small vision transformer (Dosovitskiy et al., 2021): [B, C, S, S] → [B, width], the mean over patches.

    It has learned positions, ``depth`` pre-norm blocks and no class token. Images are padded on the right and below to a
    multiple of the patch with zeros, the mean color after normalization. Positions are learned for one image size, and
    other sizes are refused.
    """

    def __init__(
        self,
        *,
        channels: int,
        image_size: int,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        patch: int | None = None,
    ) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"width={width} must be a multiple of heads={heads}")
        self.image_size = image_size
        self.patch = patch_size(image_size) if patch is None else patch
        side = -(-image_size // self.patch)
        self.padding = side * self.patch - image_size
        self.embed = nn.Conv2d(channels, width, self.patch, stride=self.patch)
        self.positions = nn.Parameter(torch.empty(1, side * side, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.feature_dim = width
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns features [B, width] of normalized images [B, C, S, S]."""
        if x.shape[-2:] != (self.image_size, self.image_size):
            raise InputError(
                f"this ViT takes {self.image_size}×{self.image_size} images, got {x.shape[-2]}×"
                f"{x.shape[-1]}: resize the images, leave out the view option side, or build an encoder with "
                f"image_size={x.shape[-1]}"
            )
        if self.padding:
            x = functional.pad(x, (0, self.padding, 0, self.padding))
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return self.norm(self.blocks(tokens + self.positions)).mean(dim=1)


BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "convnet-pool": functools.partial(ConvNet, pool=True),
    "resnet10": resnet10,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "vit": ViT,
    "lite0": Lite0,
    "lite0-random": Lite0,
    "lite0-stages": Lite0Stages,
    "lite0-stages-random": Lite0Stages,
}
LARGEST = {"depth": 128, "stages": 8}  # an untrusted description must not keep the machine busy for hours
LARGEST_SIZE = 65536
LARGEST_NETWORK = 2**31  # parameters, 8 GiB in float32


def option_names(name: str) -> list[str]:
    """Returns the names of the options of an architecture."""
    made_by = resnet if name.startswith("resnet") else BACKBONES[name]
    parameters = inspect.signature(made_by).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in ("channels", "image_size")
    ]
