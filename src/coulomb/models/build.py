"""Encoders by name: random weights, or weights that exist."""

from collections.abc import Sequence
from typing import Any

import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import seeded_initialization
from coulomb.models.backbones import BACKBONES, LARGEST_NETWORK, option_names
from coulomb.models.image_network import (
    ImageNetwork,
    Normalization,
    assemble,
    require_architecture,
)
from coulomb.models.lite0 import PREPROCESSING, read_tensors, weights_file
from coulomb.models.names import AT_WEIGHTS, is_local, is_published, names_weights
from coulomb.models.published import OtherChannels, require_channels
from coulomb.models.starting_weights import build_local, find
from coulomb.models.stem import PHOTO, adapt, adapts

# Names of encoders with weights → the same architecture without.
RANDOM = {"lite0": "lite0-random", "lite0-stages": "lite0-stages-random"}


def has_weights(name: str | None) -> bool:
    """Returns True for encoders that start from weights: ``lite0``, ``hf:NAME@weights``, ``run:PATH``, a folder, …

    >>> has_weights("lite0"), has_weights("resnet18"), has_weights("hf:microsoft/resnet-18@weights")
    (True, False, True)
    """
    return name in RANDOM or names_weights(name)


def takes_width(name: str | None) -> bool:
    """Returns True for encoders with the option ``width``."""
    return name in BACKBONES and "width" in option_names(name)


def takes_norm(name: str | None) -> bool:
    """Returns True for encoders with the option ``norm``."""
    return name in BACKBONES and "norm" in option_names(name)


def require_encoder(name: str) -> None:
    """Raises `InputError` unless an encoder of this ``name`` can be built as far as that is known without building it."""
    if is_local(name):
        find(name)
    elif name in RANDOM:
        weights_file()
    else:
        require_architecture(name)


def build_encoder(
    name: str,
    *,
    channels: int,
    image_size: int | None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int = 0,
    weights: bool = True,
    **options: Any,
) -> ImageNetwork:
    """Builds an encoder by name.

    ============ ========  ======================================================================
    name         features  options (defaults)
    ============ ========  ======================================================================
    convnet      256       width=32, stages=4, depth=1 (per stage), norm="batch"; for small images and CPUs
    convnet-pool 256       the same, with max-pooling; 2.3 times the work, for about 32 pixels
    resnet10–34  512       width=64, small_stem=None (3×3 up to 64 pixels), zero_init_residual=True, norm
    resnet50     2048      the same
    vit          192       width=192, depth=6, heads=3, patch=None (chosen by image_size)
    lite0        1280      none; EfficientNet-Lite0 with ImageNet weights, from 32 pixels
    lite0-stages 1664      none; the same weights, features of four maps: for enlarged small images
    lite0-random 1280      none; random weights; of lite0-stages: lite0-stages-random
    hf:NAME      varies    of transformers (``pip install 'coulomb[hf]'``): a name of the hub, a local folder, a model type
    timm:NAME    varies    of timm (``pip install 'coulomb[timm]'``)
    NAME         varies    of another installed package: an entry point of the group ``coulomb.encoders``
    run:FOLDER   varies    the encoder of an earlier run, with its weights
    FOLDER       varies    saved by transformers, timm or coulomb, or its .safetensors file, with its weights
    ============ ========  ======================================================================

    ``lite0``, ``hf:NAME@weights`` and ``timm:NAME@weights`` start from published weights, with which an evaluation compares
    them. All encoders with weights keep the normalization that these were trained with, and the ``preprocessing``; weights for
    3 channels are adapted to 2 or more than 3, see `coulomb.models.stem`, and then ``mean`` and ``std`` apply.

    Args:
        name: from the table.
        channels: channels of the images.
        image_size: side of the square images in pixels; None: the size of the weights.
        mean: [C], of the training images in [0, 1]; default 0. Weights that exist keep their own.
        std: [C], of the training images in [0, 1]; default 1. Weights that exist keep their own.
        seed: seed of the random weights. The global random state is neither used nor changed.
        weights: False builds the same architecture with random weights, for example lite0-random for lite0.
        options: options of the architecture.

    Raises:
        InputError: the name or an option is unknown or out of range, or a library is missing.

    >>> build_encoder("convnet", channels=3, image_size=32).feature_dim
    256
    """
    shared: dict[str, Any] = {"mean": mean, "std": std, "seed": seed, "weights": weights}
    try:
        return _build(name, channels=channels, image_size=image_size, **shared, **options)
    except OtherChannels as other:
        if not adapts(other.expected, channels):
            raise
    photos = _build(name, channels=PHOTO, image_size=image_size, seed=seed, weights=weights, **options)
    return adapt(photos, channels, Normalization(channels, mean, std))


def _build(
    name: str,
    *,
    channels: int,
    image_size: int | None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int,
    weights: bool,
    **options: Any,
) -> ImageNetwork:
    """Builds an encoder, see `build_encoder`; raises `OtherChannels` if its weights are for other channels."""
    if is_local(name):
        if options:
            option = next(iter(options))
            raise InputError(
                f"{option}={options[option]!r}: {name} takes no options; its weights determine the architecture"
            )
        normalize = Normalization(channels, mean, std)
        return build_local(
            name, channels=channels, image_size=image_size, seed=seed, weights=weights, normalize=normalize
        )
    if not weights:
        name = RANDOM.get(name) or (name.removesuffix(AT_WEIGHTS) if is_published(name) else name)
    if name in RANDOM:
        return build_lite0(name, channels, image_size, options)
    if name in BACKBONES:
        with torch.device("meta"):  # uses no memory
            blank = assemble(name, channels=channels, image_size=image_size, mean=mean, std=std, options=options)
        size = sum(parameter.numel() for parameter in blank.parameters())
        if size > LARGEST_NETWORK:
            raise InputError(
                f"encoder={name!r} with {', '.join(f'{k}={v}' for k, v in options.items())} has {size:.2g} parameters, more "
                f"than {LARGEST_NETWORK:.2g}; make it narrower"
            )
    with seeded_initialization(seed, "encoder", name):
        return assemble(name, channels=channels, image_size=image_size, mean=mean, std=std, options=options)


def build_lite0(name: str, channels: int, image_size: int | None, options: dict[str, Any]) -> ImageNetwork:
    """Builds EfficientNet-Lite0, or its variant ``name``, with its ImageNet weights."""
    image_size = image_size or PREPROCESSING.side
    preprocessing = PREPROCESSING.at(image_size)
    require_channels(name, 3, channels)
    mean, std = preprocessing.mean, preprocessing.std
    with torch.device("meta"):
        encoder = assemble(name, channels=3, image_size=image_size, mean=mean, std=std, options=options)
    tensors = {name: tensor for name, tensor in read_tensors().items() if not name.startswith("_fc.")}
    encoder.backbone.load_state_dict(tensors, assign=True)
    encoder.normalize = Normalization(3, mean, std)
    encoder.preprocessing = preprocessing
    return encoder
