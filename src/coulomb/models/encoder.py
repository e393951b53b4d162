"""Encoders: images in [0,1] in, features out; built by name or wrapped around a module of the user's."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.errors import InputError, did_you_mean
from coulomb.models.convnet import ConvNet
from coulomb.models.dry_run import feature_dim_of
from coulomb.models.initialisation import seeded_initialisation
from coulomb.models.libraries import installed, is_published, parse
from coulomb.models.normalisation import Normalisation
from coulomb.models.pooling import pooled
from coulomb.models.published import published_backbone
from coulomb.models.resnet import ResNet, resnet, resnet10, resnet18, resnet34, resnet50
from coulomb.models.vit import ViT

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "resnet10": resnet10,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "vit": ViT,
}
LARGEST = {"depth": 128, "stages": 8}  # a description from a stranger must not keep the machine busy for hours
LARGEST_SIZE = 65536
LARGEST_NETWORK = 2**31  # parameters, 8 GiB in float32
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


def options_of(name: str) -> list[str]:
    """The names of the options that an architecture takes."""
    made_by = resnet if name.startswith("resnet") else BACKBONES[name]
    parameters = inspect.signature(made_by).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in ("channels", "image_size")
    ]


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
