"""Encoders of images: normalization, a backbone and perhaps an adapter; images in [0, 1] in, features out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from coulomb.ground import plugins
from coulomb.ground.errors import InputError, did_you_mean
from coulomb.models.backbones import (
    BACKBONES,
    LARGEST,
    LARGEST_SIZE,
    ConvNet,
    ResNet,
    ViT,
    option_names,
    require_norm,
)
from coulomb.models.encoder import Encoder
from coulomb.models.installed import build_installed, installed_encoders
from coulomb.models.library_models import as_backbone
from coulomb.models.lite0 import Lite0
from coulomb.models.names import Published, is_published, parse_name
from coulomb.models.preprocessing import Preprocessing
from coulomb.models.published import import_library, published_backbone


class Normalization(nn.Module):
    """Normalizes images [B, C, H, W], floats in [0, 1], to (x − mean) / std per channel. It is saved with the encoder.

    Args:
        channels: C.
        mean: [C]; default 0.
        std: [C], positive; default 1.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        super().__init__()
        self.channels = channels
        self.register_buffer("mean", _per_channel("mean", mean, channels, 0.0))
        self.register_buffer("std", _per_channel("std", std, channels, 1.0))
        if not self.std.is_meta and not bool((self.std > 0).all()):
            raise InputError(f"std={std} must be positive; drop constant channels, or set their std to 1")

    def forward(self, images: Tensor) -> Tensor:
        """Returns the normalized images in their memory format; raises `InputError` for another shape or type."""
        if images.ndim != 4 or images.shape[1] != self.channels:
            raise InputError(f"images of shape {list(images.shape)}: the encoder takes [B, {self.channels}, H, W]")
        if not images.is_floating_point():
            raise InputError(f"images are {images.dtype}; the encoder takes floats in [0, 1]: images.float() / 255")
        return (images - self.mean) / self.std


def _per_channel(name: str, values: Sequence[float] | None, channels: int, default: float) -> Tensor:
    """Returns one value per channel as a tensor [1, C, 1, 1]."""
    numbers = [default] * channels if values is None else [float(value) for value in values]
    if len(numbers) != channels:
        raise InputError(f"{name} has {len(numbers)} values for {channels} channels; give one per channel")
    if not all(math.isfinite(number) for number in numbers):
        raise InputError(f"{name}={numbers} must be finite")
    return torch.tensor(numbers, dtype=torch.float32).view(1, channels, 1, 1)


# Kinds of encoder in a saved configuration: around a user's module, and of another library.
OWN_MODULE = "module"
PUBLISHED = "published"
INSTALLED = "installed"


class ImageNetwork(Encoder):
    """Maps images [B, C, H, W], floats in [0, 1], to features [B, F] by normalization, a backbone and perhaps an adapter.

    Image networks are made by `build_encoder` and `wrap_encoder`.

    Attributes:
        normalize: the normalization.
        preprocessing: how the published network expects photos; None for encoders trained from scratch.
        compiled: True if the backbone is compiled, in training mode only, see `compile_backbone`. It is not saved.

    Shape:
        images: [B, C, H, W].
        output: [B, F].

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> encoder(torch.rand(2, 1, 16, 16)).shape
    torch.Size([2, 32])
    """

    cells = "images"
    statistics = "normalize"

    def __init__(
        self,
        backbone: nn.Module,
        normalize: Normalization,
        *,
        feature_dim: int,
        config: Mapping[str, Any],
        preprocessing: Preprocessing | None = None,
    ) -> None:
        super().__init__(backbone, feature_dim=feature_dim, config=config, column="image")
        self.normalize = normalize
        self._modules = {"normalize": self._modules.pop("normalize"), **self._modules}  # the order of the forward pass
        self.preprocessing = preprocessing
        self.compiled = False

    @property
    def channels(self) -> int:
        """C, channels of the images."""
        return self.config["channels"]

    @property
    def image_size(self) -> int:
        """Side of the square images that it was built for; convolutional encoders also take other sizes."""
        return self.config["image_size"]

    def description(self) -> dict[str, Any]:
        """Returns the normalization, and the preprocessing of a published network."""
        statistics = {"mean": self.normalize.mean.flatten().tolist(), "std": self.normalize.std.flatten().tolist()}
        return statistics | ({} if self.preprocessing is None else {"preprocessing": self.preprocessing.to_json()})

    def backbone_pass(self, cells: Tensor) -> Tensor:
        """Returns the features [B, F'] of images [B, C, H, W]; raises `InputError` for images of another shape or type."""
        # Evaluations are too few to compile for, and their batches have other sizes.
        plain = self.compiled and not self.training
        with torch.compiler.set_stance("force_eager") if plain else nullcontext():
            # The memory format in which convolutions of a CPU are up to 1.5 times as fast.
            normalized = self.normalize(cells).contiguous(memory_format=torch.channels_last)
            return pool_features(self.backbone(normalized), cells.shape[0], self.name)

    def trial_cells(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Returns images [count, C, S, S], black or with random pixels."""
        shape = count, self.channels, self.image_size, self.image_size
        return torch.zeros(shape) if generator is None else torch.rand(shape, generator=generator)

    def compile_backbone(self) -> None:
        """Compiles the backbone with `torch.compile`, at its first use in training mode; copies are not compiled."""
        self.backbone.compile()
        self.compiled = True


def require_images(encoder: Encoder, name: object) -> ImageNetwork:
    """Returns the encoder; raises `InputError` if it takes something else than images. ``name``: where it came from."""
    if not isinstance(encoder, ImageNetwork):
        raise InputError(f"encoder={str(name)!r}: takes {encoder.cells}; an encoder of images is needed here")
    return encoder


def assemble(
    name: str,
    *,
    channels: int,
    image_size: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    options: Mapping[str, Any],
) -> ImageNetwork:
    """Builds an architecture with the current generator and device, so that loading need not initialize weights."""
    require_architecture(name)
    if not all(size is None or 1 <= size <= LARGEST_SIZE for size in (channels, image_size)):
        raise InputError(f"channels={channels} and image_size={image_size} must be from 1 to {LARGEST_SIZE}")
    if is_published(name):
        statistics = Normalization(channels, mean, std)
        return assemble_published(name, None, channels, image_size, statistics, options)
    image_size = require_size(name, None) if image_size is None else image_size
    if name not in BACKBONES:
        return assemble_installed(name, channels, image_size, Normalization(channels, mean, std), options)
    known = option_names(name)
    for option, value in options.items():
        if option not in known:
            raise InputError(
                f"{option}={value!r}: {name} has no such option; its options are {', '.join(known) or 'none'}"
            )
        if option == "norm":
            require_norm(name, value)
            continue
        largest = LARGEST.get(option, LARGEST_SIZE)
        if value is not None and not (isinstance(value, int) and (isinstance(value, bool) or 1 <= value <= largest)):
            raise InputError(f"{option}={value!r} of {name} must be a whole number from 1 to {largest}")
    backbone = BACKBONES[name](channels=channels, image_size=image_size, **options)
    assert isinstance(backbone, ConvNet | ResNet | ViT | Lite0)
    config = {
        "kind": "built-in",
        "name": name,
        "channels": channels,
        "image_size": image_size,
        "options": dict(options),
    }
    return ImageNetwork(backbone, Normalization(channels, mean, std), feature_dim=backbone.feature_dim, config=config)


def require_architecture(name: str) -> None:
    """Raises `InputError` unless ``name`` is known and its library is installed."""
    if name in BACKBONES:
        plugins.warn_if_claimed(plugins.ENCODERS, name)
    elif is_published(name):
        import_library(parse_name(name).kind)
    elif name not in (installed := installed_encoders()):
        names = [*BACKBONES, *installed]
        raise InputError(
            f"encoder={name!r} is unknown: use one of {', '.join(names)}, hf:NAME, timm:NAME (with @weights: published "
            "weights), run:FOLDER, a folder with weights, an encoder of a package that is installed, or wrap your own module"
            + did_you_mean(name.removesuffix("@weights"), names)
        )


def assemble_installed(
    name: str, channels: int, image_size: int, normalize: Normalization, options: Mapping[str, Any]
) -> ImageNetwork:
    """Builds an encoder of another installed package; ``feature_dim`` is measured by a dry run."""
    if options:
        option = next(iter(options))
        raise InputError(f"{option}={options[option]!r}: {name}, of another package, has no such option")
    backbone = build_installed(name, channels=channels, image_size=image_size)
    config = {"kind": INSTALLED, "name": name, "channels": channels, "image_size": image_size, "options": {}}
    encoder = ImageNetwork(backbone, normalize, feature_dim=0, config=config)
    encoder.feature_dim = measure_feature_dim(encoder, name, channels, image_size)
    return encoder


def assemble_published(
    name: str,
    parsed: Published | None,
    channels: int,
    image_size: int | None,
    normalize: Normalization,
    options: Mapping[str, Any],
) -> ImageNetwork:
    """Builds an encoder of another library; ``feature_dim`` is measured by a dry run.

    Published weights keep their own normalization. ``parsed``: what the name means; default as in `parse_name`.
    ``image_size``: default: the size of the weights.
    """
    backbone, saved, preprocessing = published_backbone(
        name, channels=channels, image_size=image_size, options=options, parsed=parsed
    )
    if parsed is not None and parsed.description is not None:
        name = f"{parsed.kind}:{parsed.description.get('model_type') or parsed.description['architecture']}"
    if image_size is None:
        image_size = require_size(name, preprocessing)
    if preprocessing is not None:
        preprocessing = preprocessing.at(image_size)
        normalize = Normalization(channels, preprocessing.mean, preprocessing.std)
    config = {"kind": PUBLISHED, "name": name, "channels": channels, "image_size": image_size, "options": saved}
    encoder = ImageNetwork(backbone, normalize, feature_dim=0, config=config, preprocessing=preprocessing)
    encoder.feature_dim = measure_feature_dim(encoder, name, channels, image_size)
    return encoder


def require_size(name: str, preprocessing: Preprocessing | None) -> int:
    """Returns the image size of published weights; raises `InputError` for an encoder without weights."""
    if preprocessing is None:
        raise InputError(
            f"image_size=None: {name} has no weights that decide it; give the side of the images in pixels"
        )
    return preprocessing.side


def wrap_encoder(
    module: nn.Module,
    *,
    channels: int,
    image_size: int,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> ImageNetwork:
    """Makes an encoder of a module that maps images [B, C, S, S] to features [B, F] or to maps [B, F, h, w].

    Maps are averaged over h and w, and a model of transformers or timm is used without its head, see
    `coulomb.models.library_models.as_backbone`. ``feature_dim`` is measured by a dry run in eval mode on the device of the
    module, which changes neither its buffers and mode nor the random state.

    Args:
        module: the module. It receives normalized images.
        channels: C.
        image_size: S in pixels.
        mean: [C], of the training images in [0, 1]; default 0.
        std: [C], of the training images in [0, 1]; default 1.

    Raises:
        InputError: the module fails on such images, or returns a tuple, a dict or a tensor of another shape.

    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> wrap_encoder(net, channels=1, image_size=8).feature_dim
    10
    """
    normalize = Normalization(channels, mean, std)
    first = next(iter(module.parameters()), None)
    if first is not None:
        normalize.to(first.device)
    config = {"kind": OWN_MODULE, "name": type(module).__name__, "channels": channels, "image_size": image_size}
    encoder = ImageNetwork(as_backbone(module), normalize, feature_dim=0, config=config)
    encoder.feature_dim = measure_feature_dim(encoder, encoder.name, channels, image_size)
    return encoder


def pool_features(output: object, batch: int, name: str) -> Tensor:
    """Returns features [B, F], averaging maps [B, F, h, w] over h and w; raises `InputError` for other outputs."""
    if not isinstance(output, Tensor):
        raise InputError(
            f"{name} returned a {type(output).__name__}; an encoder must return one tensor [B, F] or [B, F, h, w]: "
            "wrap it in a module whose forward returns that tensor"
        )
    if output.ndim not in (2, 4) or output.shape[0] != batch:
        raise InputError(
            f"{name} returned a tensor of shape {list(output.shape)} for {batch} images; an encoder must return "
            "[B, F], or maps [B, F, h, w], which are averaged: wrap it in a module that pools its output"
        )
    return output if output.ndim == 2 else output.mean(dim=(2, 3))


def measure_feature_dim(encoder: nn.Module, name: str, channels: int, size: int) -> int:
    """Returns F for a batch of two blank images; restores buffers, modes and the random state."""
    parameter = next(iter(encoder.parameters()), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    images = torch.zeros(2, channels, size, size, device=device)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), restored(encoder):
        try:
            return int(encoder(images).shape[1])
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{name} failed on a batch of shape {list(images.shape)}: {type(error).__name__}: {error}"
            ) from error


@contextmanager
def restored(module: nn.Module) -> Iterator[None]:
    """Context in eval mode without gradients that restores the mode of each submodule and all buffers.

    BatchNorm does not change its buffers in eval mode, but a user's module may.
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


LOWEST, HIGHEST = -0.5, 1.5  # values outside are clearly not in [0, 1], but 0–255 or already normalized


def check_input(encoder: ImageNetwork, inputs: tuple[Any, ...]) -> None:
    """Forward pre-hook of a loaded encoder that checks its input; training runs without it.

    Raises:
        InputError: the input is not a tensor, has another image size than the encoder, or is clearly outside [0, 1].
    """
    images = inputs[0] if inputs else None
    remedy = "run.encode(images) accepts images of any kind"
    if not isinstance(images, Tensor):
        raise InputError(f"images: must be a tensor, got {type(images).__name__}; {remedy}")
    size = encoder.image_size
    if images.ndim == 4 and tuple(images.shape[2:]) != (size, size):
        raise InputError(
            f"images of shape {list(images.shape)}: the encoder was trained on {size}×{size} pixels; {remedy}, "
            "and coulomb.models.load_encoder(run) returns the encoder without this check"
        )
    if torch.compiler.is_compiling() or images.is_meta or not images.is_floating_point() or not images.numel():
        return
    low, high = (float(value) for value in images.detach().aminmax())
    if not (low >= LOWEST and high <= HIGHEST):
        raise InputError(
            f"images: values from {low:g} to {high:g}; the encoder takes [0, 1] and normalizes internally: divide values "
            f"0 to 255 by 255, and omit other normalization; {remedy}"
        )
