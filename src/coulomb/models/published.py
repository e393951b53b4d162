"""Backbones of other libraries: ``hf:NAME`` (transformers) and ``timm:NAME``."""

import inspect
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor, nn

from coulomb.errors import InputError, did_you_mean

KINDS = {"hf": "transformers", "timm": "timm"}  # prefix → the library that must be installed
EXAMPLES = {"hf": "hf:facebook/dinov2-small or hf:resnet", "timm": "timm:resnet18 or timm:vit_tiny_patch16_224@weights"}
WEIGHTS = "@weights"


class Published(NamedTuple):
    """A parsed name: ``kind`` (hf or timm), ``name`` in the library, and whether published ``weights`` are used."""

    kind: str
    name: str
    weights: bool


def is_published(name: str | None) -> bool:
    """Returns True for ``hf:…`` and ``timm:…``."""
    return name is not None and name.partition(":")[0] in KINDS and ":" in name


def parse_name(text: str) -> Published:
    """Parses ``hf:NAME`` or ``timm:NAME`` (random weights), optionally with ``@weights`` (published weights)."""
    kind, _, name = text.partition(":")
    weights = name.endswith(WEIGHTS)
    name = name.removesuffix(WEIGHTS)
    if not name:
        raise InputError(f"encoder={text!r}: must be {kind}:NAME, for example {EXAMPLES[kind]}")
    return Published(kind, name, weights)


def import_library(kind: str) -> ModuleType:
    """Imports the library for a kind of name. Raises `InputError` with the command that installs it, or with its error."""
    library = KINDS[kind]
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        if error.name == library:
            raise InputError(f"encoder={kind}:…: needs {library}: pip install 'coulomb[{kind}]'") from None
        raise _import_error(kind, error) from error
    except Exception as error:  # for example, a torchvision built for another torch raises RuntimeError
        raise _import_error(kind, error) from error


def _import_error(kind: str, error: BaseException) -> InputError:
    """Returns the error for a library that is installed and cannot be imported."""
    why = f"{type(error).__name__}: {error}"
    hint = ""
    if "torchvision" in why:
        hint = "; install the torchvision that matches this torch, the CPU build with the CPU build" + (
            "" if kind == "timm" else ", or remove it"
        )
    return InputError(f"encoder={kind}:…: {KINDS[kind]} is installed but cannot be imported ({why}){hint}")


class HFBackbone(nn.Module):
    """Backbone around a transformers model: images [B, C, S, S] → features [B, F].

    Features are the ``pooler_output`` of the model if it has one, else the mean of its last hidden state over tokens or
    positions. An optional pooling layer is omitted, because published weights often lack it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        parameters = inspect.signature(model.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def forward(self, images: Tensor) -> Tensor:
        """Returns features [B, F]."""
        output = self.model(pixel_values=images, **self.options)
        pooled = getattr(output, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        last: Tensor = output.last_hidden_state
        return last.mean(dim=1) if last.ndim == 3 else last.mean(dim=(2, 3))


def build_hf(
    transformers: ModuleType, parsed: Published, text: str, *, channels: int, image_size: int, saved: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Builds a backbone of transformers; also returns its configuration, which is saved in ``encoder.json``.

    NAME is a repository of the hub, a local folder or ``config.json``, or a model type (``hf:resnet``: the default
    configuration of the library, without download). Image size and channels are those of the run, except with published
    weights.
    """
    if saved:
        config = transformers.AutoConfig.for_model(**_described(text, saved))
    else:
        config = _configuration(transformers, parsed, text)
        if not parsed.weights:
            for option, value in (("image_size", image_size), ("num_channels", channels)):
                if hasattr(config, option):
                    setattr(config, option, value)
        elif getattr(config, "num_channels", channels) != channels:
            raise InputError(
                f"encoder={text!r}: its weights are for {config.num_channels} channels and the images have {channels}; "
                f"give --channels {config.num_channels}"
            )
    extra = _without_pooling(config)
    try:
        if parsed.weights and not saved:
            model = transformers.AutoModel.from_pretrained(parsed.name, config=config, **extra)
        else:
            model = transformers.AutoModel.from_config(config, **extra)
    except OSError as error:
        raise InputError(
            f"encoder={text!r}: its weights could not be downloaded or loaded ({_first_line(error)})"
        ) from error
    except ImportError as error:
        raise _import_error("hf", error) from error
    except Exception as error:
        raise InputError(
            f"encoder={text!r}: cannot be built for {image_size}×{image_size} images: {_first_line(error)}"
        ) from error
    return HFBackbone(model), {"architecture": json.loads(config.to_json_string(use_diff=False))}


def _configuration(transformers: ModuleType, parsed: Published, text: str) -> Any:
    try:
        if parsed.name in transformers.CONFIG_MAPPING:
            if parsed.weights:
                raise InputError(
                    f"encoder={text!r}: {parsed.name!r} is a model type and has no weights; give the name of a model"
                )
            config = transformers.AutoConfig.for_model(parsed.name)
        else:
            config = transformers.AutoConfig.from_pretrained(parsed.name)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"encoder={text!r}: no such configuration ({_first_line(error)}); give a name of the hub, a local folder or a "
            "model type such as vit, dinov2, convnext or resnet"
        ) from error
    return getattr(config, "vision_config", config)  # the image encoder of a model for images and text


def _described(text: str, saved: dict[str, Any]) -> dict[str, Any]:
    architecture = saved.get("architecture")
    if not isinstance(architecture, dict) or not isinstance(architecture.get("model_type"), str):
        raise InputError(f"encoder={text!r}: encoder.json is damaged: its architecture has no model_type")
    return architecture


def _without_pooling(config: Any) -> dict[str, bool]:
    """Returns ``add_pooling_layer=False`` if the class of the model has this parameter."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    try:
        model_class = MODEL_MAPPING[type(config)]
    except KeyError:
        return {}
    except ImportError as error:
        raise _import_error("hf", error) from error
    parameters = inspect.signature(model_class).parameters if isinstance(model_class, type) else {}
    return {"add_pooling_layer": False} if "add_pooling_layer" in parameters else {}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def build_timm(
    timm: ModuleType, parsed: Published, text: str, *, channels: int, image_size: int, saved: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Builds a timm model without its classifier, so that it returns pooled features [B, F].

    Models with a fixed input size get the image size of the run; timm adapts published weights to size and channels. The
    name suffices to build it again.
    """
    if not timm.is_model(parsed.name.partition(".")[0]):
        names = (f"timm:{name}" for name in timm.list_models())
        hint = did_you_mean(f"timm:{parsed.name}", names) or "; timm.list_models() lists the names"
        raise InputError(f"encoder={text!r}: timm has no model {parsed.name!r}{hint}")
    published = timm.get_pretrained_cfg(parsed.name)
    options: dict[str, Any] = {"in_chans": channels}
    if getattr(published, "fixed_input_size", False):
        options["img_size"] = image_size
    try:
        model = timm.create_model(parsed.name, pretrained=parsed.weights and not saved, num_classes=0, **options)
    except OSError as error:
        raise InputError(f"encoder={text!r}: its weights could not be downloaded or loaded ({error})") from error
    except Exception as error:
        raise InputError(
            f"encoder={text!r}: cannot be built for {image_size}×{image_size} images of {channels} channels: "
            f"{type(error).__name__}: {error}"
        ) from error
    return model, {"library": f"timm {timm.__version__}"}


BUILD: dict[str, Callable[..., tuple[nn.Module, dict[str, Any]]]] = {"hf": build_hf, "timm": build_timm}
SAVED = {"hf": ("architecture",), "timm": ("library",)}  # entries of `encoder.json` besides the name


def published_backbone(
    text: str, *, channels: int, image_size: int, options: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Builds a backbone of another library. Code from the hub is never run (``trust_remote_code`` stays off).

    Args:
        text: ``hf:NAME`` or ``timm:NAME``, see `parse_name`.
        channels: C.
        image_size: S in pixels.
        options: empty for a new encoder; for a loaded one, the saved entries, and then nothing is downloaded.

    Returns:
        The module, images [B, C, S, S] → [B, F] or [B, F, h, w], and the entries to save to build it again.

    Raises:
        InputError: the library is missing or broken, the name is unknown, or the architecture does not fit the images.
    """
    parsed = parse_name(text)
    for option, value in options.items():
        if option not in SAVED[parsed.kind]:
            raise InputError(f"{option}={value!r}: {text} takes no options; its architecture is set by the library")
    library = import_library(parsed.kind)
    return BUILD[parsed.kind](library, parsed, text, channels=channels, image_size=image_size, saved=dict(options))
