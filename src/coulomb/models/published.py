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
    """A name taken apart: ``kind`` (hf or timm), the library's own ``name``, and whether its ``weights`` are wanted."""

    kind: str
    name: str
    weights: bool


def is_published(name: str | None) -> bool:
    """Whether ``name`` reads as ``hf:…`` or ``timm:…``."""
    return name is not None and name.partition(":")[0] in KINDS and ":" in name


def parse(text: str) -> Published:
    """``hf:NAME`` or ``timm:NAME``: fresh weights from the seed; with ``@weights`` at the end, the published ones."""
    kind, _, name = text.partition(":")
    weights = name.endswith(WEIGHTS)
    name = name.removesuffix(WEIGHTS)
    if not name:
        raise InputError(f"encoder={text!r}: write {kind}:NAME, for instance {EXAMPLES[kind]}")
    return Published(kind, name, weights)


def installed(kind: str) -> ModuleType:
    """The library behind a kind of name; `InputError` with the command that installs it, or with what is wrong with it."""
    library = KINDS[kind]
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        if error.name == library:
            raise InputError(f"encoder={kind}:…: needs {library}: pip install 'coulomb[{kind}]'") from None
        raise broken(kind, error) from error
    except Exception as error:  # a torchvision of another torch is a RuntimeError, for one
        raise broken(kind, error) from error


def broken(kind: str, error: BaseException) -> InputError:
    """What to say where the library is there and cannot be imported."""
    why = f"{type(error).__name__}: {error}"
    hint = ""
    if "torchvision" in why:
        hint = "; install the torchvision that belongs to this torch, the CPU build with the CPU build" + (
            "" if kind == "timm" else ", or remove it"
        )
    return InputError(f"encoder={kind}:…: {KINDS[kind]} is installed but cannot be imported ({why}){hint}")


class HFBackbone(nn.Module):
    """A transformers model as an encoder's backbone: images [B,C,S,S] → features [B,F].

    Features are the model's ``pooler_output`` where it has one, else the mean of its last hidden state over tokens or
    positions. A pooling layer that can be left out is left out: it is often not among the published weights.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        takes = inspect.signature(model.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in takes else {}

    def forward(self, images: Tensor) -> Tensor:
        """Features [B,F]."""
        found = self.model(pixel_values=images, **self.options)
        pooled = getattr(found, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        last: Tensor = found.last_hidden_state
        return last.mean(dim=1) if last.ndim == 3 else last.mean(dim=(2, 3))


def build_hf(
    transformers: ModuleType, asked: Published, text: str, *, channels: int, image_size: int, saved: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """The backbone, and its configuration as saved in ``encoder.json``.

    NAME is a repository of the hub, a local folder or ``config.json``, or a model type (``hf:resnet``: the library's
    default configuration, without a network). Image size and channels are set to the run's, except with published weights.
    """
    if saved:
        config = transformers.AutoConfig.for_model(**_described(text, saved))
    else:
        config = _configuration(transformers, asked, text)
        if not asked.weights:
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
        if asked.weights and not saved:
            model = transformers.AutoModel.from_pretrained(asked.name, config=config, **extra)
        else:
            model = transformers.AutoModel.from_config(config, **extra)
    except OSError as error:
        raise InputError(f"encoder={text!r}: its weights cannot be had ({_first_line(error)})") from error
    except ImportError as error:
        raise broken("hf", error) from error
    except Exception as error:
        raise InputError(
            f"encoder={text!r}: cannot be built for {image_size}×{image_size} images: {_first_line(error)}"
        ) from error
    return HFBackbone(model), {"architecture": json.loads(config.to_json_string(use_diff=False))}


def _configuration(transformers: ModuleType, asked: Published, text: str) -> Any:
    try:
        if asked.name in transformers.CONFIG_MAPPING:
            if asked.weights:
                raise InputError(f"encoder={text!r}: {asked.name!r} is a type of model and has no weights; name one")
            config = transformers.AutoConfig.for_model(asked.name)
        else:
            config = transformers.AutoConfig.from_pretrained(asked.name)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(
            f"encoder={text!r}: no such configuration ({_first_line(error)}); give a name of the hub, a local folder or a "
            "model type such as vit, dinov2, convnext or resnet"
        ) from error
    return getattr(config, "vision_config", config)  # of a model of images and text: its eyes


def _described(text: str, saved: dict[str, Any]) -> dict[str, Any]:
    architecture = saved.get("architecture")
    if not isinstance(architecture, dict) or not isinstance(architecture.get("model_type"), str):
        raise InputError(f"encoder={text!r}: its description has no architecture with a model_type; it is damaged")
    return architecture


def _without_pooling(config: Any) -> dict[str, bool]:
    """``add_pooling_layer=False`` where the model class takes it."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    try:
        made_by = MODEL_MAPPING[type(config)]
    except KeyError:
        return {}
    except ImportError as error:
        raise broken("hf", error) from error
    takes: set[str] = set(inspect.signature(made_by).parameters) if isinstance(made_by, type) else set()
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def build_timm(
    timm: ModuleType, asked: Published, text: str, *, channels: int, image_size: int, saved: dict[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """The model without its classifier, so that it returns pooled features [B,F].

    Transformers whose position embedding is tied to a size get the run's; timm adapts published weights to the size and
    to the channels itself. Nothing beside the name is needed to build it again.
    """
    known = timm.is_model(asked.name.partition(".")[0])
    if not known:
        names = (f"timm:{name}" for name in timm.list_models())
        hint = did_you_mean(f"timm:{asked.name}", names) or "; timm.list_models() has their names"
        raise InputError(f"encoder={text!r}: timm has no model {asked.name!r}{hint}")
    published = timm.get_pretrained_cfg(asked.name)
    options: dict[str, Any] = {"in_chans": channels}
    if getattr(published, "fixed_input_size", False):
        options["img_size"] = image_size
    wanted = asked.weights and not saved
    try:
        model = timm.create_model(asked.name, pretrained=wanted, num_classes=0, **options)
    except OSError as error:
        raise InputError(f"encoder={text!r}: its weights cannot be had ({error})") from error
    except Exception as error:
        raise InputError(
            f"encoder={text!r}: cannot be built for {image_size}×{image_size} images of {channels} channels: "
            f"{type(error).__name__}: {error}"
        ) from error
    return model, {"library": f"timm {timm.__version__}"}


BUILD: dict[str, Callable[..., tuple[nn.Module, dict[str, Any]]]] = {"hf": build_hf, "timm": build_timm}
SAVED = {"hf": ("architecture",), "timm": ("library",)}  # what `encoder.json` keeps beside the name


def published_backbone(
    text: str, *, channels: int, image_size: int, options: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """The module, images [B,C,S,S] → [B,F] or [B,F,h,w], and what must be saved to build it again without a network.

    ``options`` is empty for a new encoder, and what was saved for one that is loaded: then nothing is downloaded, as the
    weights come from the file. Code from the hub is never run (``trust_remote_code`` stays off).

    Raises:
        InputError: the library is missing or broken, the name is unknown, or the architecture does not fit the images.
    """
    asked = parse(text)
    for option, value in options.items():
        if option not in SAVED[asked.kind]:
            raise InputError(f"{option}={value!r} is no option of {text}: its architecture is the library's")
    library = installed(asked.kind)
    return BUILD[asked.kind](library, asked, text, channels=channels, image_size=image_size, saved=dict(options))
