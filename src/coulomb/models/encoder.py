"""Encoders: normalisation and a backbone; images in [0, 1] in, features out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from coulomb.errors import InputError, did_you_mean
from coulomb.models.backbones import BACKBONES, LARGEST, LARGEST_NETWORK, LARGEST_SIZE, ConvNet, ResNet, ViT, options_of
from coulomb.models.published import installed, is_published, parse, published_backbone
from coulomb.randomness import seeded_initialisation


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


OWN_MODULE = "module"  # what a saved configuration calls an encoder whose architecture is the user's
PUBLISHED = "published"  # … and one whose architecture is another library's


class Encoder(nn.Module):
    """Normalisation, then a backbone: images [B,C,H,W], float in [0,1] → features [B,F].

    Made by `build_encoder` or `wrap_encoder`. Attributes: ``name``; ``feature_dim`` F; ``channels``; ``image_size``;
    ``config``, a dict for JSON that says how to build the encoder again (weights and statistics not included).
    """

    def __init__(
        self, backbone: nn.Module, normalise: Normalisation, *, feature_dim: int, config: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.config = dict(config)

    @property
    def name(self) -> str:
        """The architecture's name, or the class name of the user's module."""
        return self.config["name"]

    @property
    def channels(self) -> int:
        """Channels that the encoder takes."""
        return self.config["channels"]

    @property
    def image_size(self) -> int:
        """Side of the square images it was built for; convolutional encoders take others too."""
        return self.config["image_size"]

    def forward(self, images: Tensor) -> Tensor:
        """Features [B,F]; `InputError` for images that do not fit."""
        return pooled(self.backbone(self.normalise(images)), images.shape[0], self.name)


def build_encoder(
    name: str,
    *,
    channels: int,
    image_size: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int = 0,
    **options: Any,
) -> Encoder:
    """An encoder by name, with weights drawn from ``seed`` (the global RNG is neither read nor moved).

    ===========  ========  ======================================================================
    name         features  options (defaults)
    ===========  ========  ======================================================================
    convnet      256       width=32, stages=4, depth=1 (a stage); for tiny images and CPUs
    resnet10–34  512       width=64, small_stem=None (3×3 up to 64 pixels), zero_init_residual=True
    resnet50     2048      the same
    vit          192       width=192, depth=6, heads=3, patch=None (chosen by image_size)
    hf:NAME      its own   transformers' (``pip install 'coulomb[hf]'``); NAME of the hub, a local folder, a model type
    timm:NAME    its own   timm's (``pip install 'coulomb[timm]'``)
    ===========  ========  ======================================================================

    The last two have fresh weights like all others; ``hf:NAME@weights`` and ``timm:NAME@weights`` begin with published ones,
    which then are the "untrained" network of an evaluation.

    ``mean`` and ``std`` [C] are the training images' statistics in [0,1]. Raises `InputError` for an unknown name or
    option.
    """
    if not is_published(name):
        with torch.device("meta"):  # without memory
            blank = assemble(name, channels=channels, image_size=image_size, mean=mean, std=std, options=options)
        size = sum(parameter.numel() for parameter in blank.parameters())
        if size > LARGEST_NETWORK:
            raise InputError(
                f"encoder={name!r} with {', '.join(f'{k}={v}' for k, v in options.items())} has {size:.2g} parameters, more "
                f"than {LARGEST_NETWORK:.2g}; make it narrower"
            )
    with seeded_initialisation(seed, "encoder", name):
        return assemble(name, channels=channels, image_size=image_size, mean=mean, std=std, options=options)


def assemble(
    name: str,
    *,
    channels: int,
    image_size: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    options: Mapping[str, Any],
) -> Encoder:
    """`build_encoder` with whatever generator and device are in force; loading builds without drawing weights."""
    require_encoder(name)
    if not (1 <= channels <= LARGEST_SIZE and 1 <= image_size <= LARGEST_SIZE):
        raise InputError(f"channels={channels} and image_size={image_size} must be from 1 to {LARGEST_SIZE}.")
    if is_published(name):
        return assemble_published(name, channels, image_size, Normalisation(channels, mean, std), options)
    known = options_of(name)
    for option, value in options.items():
        if option not in known:
            raise InputError(f"{option}={value!r} is no option of {name}: it takes {', '.join(known)}.")
        largest = LARGEST.get(option, LARGEST_SIZE)
        if value is not None and not (isinstance(value, int) and (isinstance(value, bool) or 1 <= value <= largest)):
            raise InputError(f"{option}={value!r} of {name} must be a whole number from 1 to {largest}.")
    backbone = BACKBONES[name](channels=channels, image_size=image_size, **options)
    assert isinstance(backbone, ConvNet | ResNet | ViT)
    config = {
        "kind": "built-in",
        "name": name,
        "channels": channels,
        "image_size": image_size,
        "options": dict(options),
    }
    return Encoder(backbone, Normalisation(channels, mean, std), feature_dim=backbone.feature_dim, config=config)


def require_encoder(name: str) -> None:
    """`InputError` unless ``name`` is known and its library installed, so that nothing is begun in vain."""
    if is_published(name):
        installed(parse(name).kind)
    elif name not in BACKBONES:
        raise InputError(
            f"encoder={name!r} is unknown: choose one of {', '.join(BACKBONES)}, hf:NAME, timm:NAME, or wrap your own module"
            + did_you_mean(name, BACKBONES)
        )


def assemble_published(
    name: str, channels: int, image_size: int, normalise: Normalisation, options: Mapping[str, Any]
) -> Encoder:
    """An encoder of another library; ``feature_dim`` is found by a dry run."""
    backbone, saved = published_backbone(name, channels=channels, image_size=image_size, options=options)
    config = {"kind": PUBLISHED, "name": name, "channels": channels, "image_size": image_size, "options": saved}
    encoder = Encoder(backbone, normalise, feature_dim=0, config=config)
    encoder.feature_dim = feature_dim_of(encoder, name, channels, image_size)
    return encoder


def wrap_encoder(
    module: nn.Module,
    *,
    channels: int,
    image_size: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Encoder:
    """An encoder around any module that maps images [B,C,S,S] to [B,F], or to maps [B,F,h,w], which are averaged.

    The module gets images normalised by ``mean`` and ``std`` (as they are in [0,1] where None). ``feature_dim`` is
    found by a dry run on the module's device in eval mode that leaves its buffers, its mode and the RNG untouched.
    Raises `InputError` where the module fails on such images or returns anything else (a tuple, a dict, tokens [B,T,F]).
    """
    normalise = Normalisation(channels, mean, std)
    first = next(iter(module.parameters()), None)
    if first is not None:
        normalise.to(first.device)
    config = {"kind": OWN_MODULE, "name": type(module).__name__, "channels": channels, "image_size": image_size}
    encoder = Encoder(module, normalise, feature_dim=0, config=config)
    encoder.feature_dim = feature_dim_of(encoder, encoder.name, channels, image_size)
    return encoder


def pooled(output: object, batch: int, name: str) -> Tensor:
    """[B,F] as it is; maps [B,F,h,w] averaged over h and w; anything else is an `InputError`."""
    if not isinstance(output, Tensor):
        raise InputError(
            f"{name} returned a {type(output).__name__}; an encoder returns one tensor [B,F] or [B,F,h,w]: "
            "wrap it in a module whose forward picks that tensor."
        )
    if output.ndim not in (2, 4) or output.shape[0] != batch:
        raise InputError(
            f"{name} returned a tensor of shape {list(output.shape)} for {batch} images; an encoder returns [B,F] or "
            "maps [B,F,h,w] (averaged over h and w): wrap it in a module that pools its output."
        )
    return output if output.ndim == 2 else output.mean(dim=(2, 3))


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
