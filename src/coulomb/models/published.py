"""Backbones of other libraries: ``hf:NAME`` (transformers) and ``timm:NAME``."""

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.models.library_models import HFBackbone
from coulomb.models.library_preprocessing import first_line, of_timm, of_transformers
from coulomb.models.names import LIBRARIES, Published, parse_name
from coulomb.models.preprocessing import Preprocessing


class Backbone(NamedTuple):
    """A built backbone, the entries of ``encoder.json`` to build it again, and its preprocessing if it has weights."""

    module: nn.Module
    saved: dict[str, Any]
    preprocessing: Preprocessing | None = None


def import_library(kind: str) -> ModuleType:
    """Imports the library for a kind of name. Raises `InputError` with the command that installs it, or with its error."""
    library = LIBRARIES[kind]
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
    return InputError(f"encoder={kind}:…: {LIBRARIES[kind]} is installed but cannot be imported ({why}){hint}")


def build_hf(
    transformers: ModuleType,
    parsed: Published,
    text: str,
    *,
    channels: int,
    image_size: int | None,
    saved: dict[str, Any],
) -> Backbone:
    """Builds a backbone of transformers; also returns its configuration, which is saved in ``encoder.json``.

    NAME is a repository of the hub, a local folder or ``config.json``, or a model type (``hf:resnet``: the default
    configuration of the library, without download). Image size and channels are set by the run, except with published
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
        else:
            require_channels(text, getattr(config, "num_channels", channels), channels)
    extra, preprocessing = without_pooling(config), None
    try:
        if parsed.weights and not saved:
            preprocessing = of_transformers(transformers, parsed.name, text, channels)
            model, loaded = _load(transformers, parsed, config, **extra)
            other = [key if isinstance(key, str) else key[0] for key in loaded["mismatched_keys"]]
            require_complete(text, model, loaded["missing_keys"], loaded["unexpected_keys"], other)
        else:
            model = transformers.AutoModel.from_config(config, **extra)
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"encoder={text!r}: its weights could not be downloaded or loaded ({first_line(error)})"
        ) from error
    except ImportError as error:
        raise _import_error("hf", error) from error
    except Exception as error:
        raise InputError(
            f"encoder={text!r}: cannot be built for {image_size}×{image_size} images: {first_line(error)}"
        ) from error
    # In float32, because the library keeps the type of the file, which may be half precision.
    architecture = json.loads(config.to_json_string(use_diff=False))
    return Backbone(HFBackbone(model.float()), {"architecture": architecture}, preprocessing)


@contextmanager
def quiet() -> Iterator[None]:
    """Context without the progress bars of transformers, and its warnings about weights that do not match: errors here."""
    from transformers.utils import logging as of_transformers

    log, bars = logging.getLogger("transformers"), of_transformers.is_progress_bar_enabled()
    level = log.level
    log.setLevel(logging.ERROR)
    of_transformers.disable_progress_bar()
    try:
        yield
    finally:
        log.setLevel(level)
        if bars:
            of_transformers.enable_progress_bar()


def _load(transformers: ModuleType, parsed: Published, config: Any, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    """Loads a model with its weights; also returns which tensors are missing, surplus or of another shape."""
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with quiet():
        if parsed.file is None:
            return transformers.AutoModel.from_pretrained(parsed.name, config=config, **options)
        model_class = transformers.models.auto.modeling_auto.MODEL_MAPPING[type(config)]
        return model_class.from_pretrained(None, config=config, state_dict=load_file(parsed.file), **options)


class OtherChannels(InputError):
    """Weights are for ``expected`` channels, another number than the images have."""

    def __init__(self, text: str, expected: int, channels: int) -> None:
        super().__init__(
            f"encoder={text!r}: its weights are for {counted(expected, 'channel')} and the images have {channels}; "
            f"give --channels {expected}, or an encoder without weights"
        )
        self.expected = expected


def require_channels(text: str, expected: int, channels: int) -> None:
    """Raises `OtherChannels` if weights are for another number of channels than the images have."""
    if expected != channels:
        raise OtherChannels(text, expected, channels)


OPTIONAL = ("head", "classifier", "fc", "pooler", "decoder")  # parts of published networks that give no features


def require_complete(
    text: str, model: nn.Module, missing: Iterable[str], surplus: Iterable[str], reshaped: Iterable[str] = ()
) -> None:
    """Raises `InputError` if weights lack tensors of a model, or have more or other ones for a part that the model also has.

    Other surplus tensors belong to parts that are not used, such as a classifier or a text encoder.
    """
    parts = {name for name, _ in model.named_children()}
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    other = sorted(reshaped)
    absent = sorted(set(missing) - set(other))
    extra = sorted(
        name
        for name in surplus
        if (part := name.removeprefix(prefix).partition(".")[0]) in parts and part not in OPTIONAL
    )
    if absent or extra or other:
        counts = [
            f"{len(names)} {what} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
            for names, what in ((absent, "missing"), (extra, "surplus"), (other, "of another shape"))
            if names
        ]
        raise InputError(
            f"encoder={text!r}: its weights do not match the architecture of its config.json: of its tensors, "
            f"{' and '.join(counts)}; use the files of one model"
        )


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
            f"encoder={text!r}: no such configuration ({first_line(error)}); give a name of the hub, a local folder or a "
            "model type such as vit, dinov2, convnext or resnet"
            + did_you_mean(parsed.name, transformers.CONFIG_MAPPING)
        ) from error
    return getattr(config, "vision_config", config)  # the image encoder of a model for images and text


def _described(text: str, saved: dict[str, Any]) -> dict[str, Any]:
    architecture = saved.get("architecture")
    if not isinstance(architecture, dict) or not isinstance(architecture.get("model_type"), str):
        raise InputError(f"encoder={text!r}: encoder.json is damaged: its architecture has no model_type")
    return architecture


def without_pooling(config: Any) -> dict[str, bool]:
    """Returns ``add_pooling_layer=False`` if the class of the model has this parameter."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    try:
        model_class = MODEL_MAPPING[type(config)]
    except KeyError:
        return {}
    except ImportError as error:
        raise _import_error("hf", error) from error
    parameters: Any = inspect.signature(model_class).parameters if isinstance(model_class, type) else {}
    return {"add_pooling_layer": False} if "add_pooling_layer" in parameters else {}


def build_timm(
    timm: ModuleType, parsed: Published, text: str, *, channels: int, image_size: int | None, saved: dict[str, Any]
) -> Backbone:
    """Builds a timm model without its classifier, so that it returns pooled features [B, F].

    Models with a fixed input size get the image size of the run; timm adapts published weights to size and channels. The
    name suffices to build it again.
    """
    if parsed.description is not None:
        return _build_timm_folder(timm, parsed, text, channels=channels, image_size=image_size)
    if not timm.is_model(parsed.name.partition(".")[0]):
        names = (f"timm:{name}" for name in timm.list_models())
        hint = did_you_mean(f"timm:{parsed.name}", names) or "; timm.list_models() lists the names"
        raise InputError(f"encoder={text!r}: timm has no model {parsed.name!r}{hint}")
    published = timm.get_pretrained_cfg(parsed.name)
    options: dict[str, Any] = {**arguments_of(saved.get("arguments")), "in_chans": channels}
    if image_size is not None and getattr(published, "fixed_input_size", False):
        options["img_size"] = image_size
    weights = parsed.weights and not saved
    if weights and (size := getattr(published, "input_size", None)):
        require_channels(text, size[0], channels)
    try:
        model = timm.create_model(parsed.name, pretrained=weights, num_classes=0, **options)
    except OSError as error:
        raise InputError(f"encoder={text!r}: its weights could not be downloaded or loaded ({error})") from error
    except Exception as error:
        raise InputError(
            f"encoder={text!r}: cannot be built for {image_size}×{image_size} images of {channels} channels: "
            f"{type(error).__name__}: {error}"
        ) from error
    preprocessing = of_timm(timm, timm.data.resolve_data_config({}, model=model), text, channels) if weights else None
    return Backbone(model, {"library": f"timm {timm.__version__}"}, preprocessing)


TIMM_ENTRIES = "input_size fixed_input_size interpolation crop_pct crop_mode mean std num_classes first_conv classifier"


# Arguments of ``timm.create_model`` that are set here, or that name files to load.
SET_HERE = "num_classes in_chans img_size pretrained pretrained_cfg pretrained_cfg_overlay checkpoint_path cache_dir"


def arguments_of(stored: Any) -> dict[str, Any]:
    """Returns the arguments of the architecture in an untrusted file, without those that are set here or name files."""
    entries = stored if isinstance(stored, dict) else {}
    return {name: value for name, value in entries.items() if name not in SET_HERE.split()}


def _build_timm_folder(
    timm: ModuleType, parsed: Published, text: str, *, channels: int, image_size: int | None
) -> Backbone:
    """Builds the model of a folder that ``timm.models.save_for_hf`` or ``push_to_hf_hub`` wrote."""
    config = parsed.description or {}
    name, arguments = config["architecture"], arguments_of(config.get("model_args"))
    if not timm.is_model(name):
        raise InputError(
            f"encoder={text!r}: timm {timm.__version__} has no model {name!r}, which its config.json names"
        )
    stored = config.get("pretrained_cfg") or {}
    entries = {key: stored[key] for key in TIMM_ENTRIES.split() if key in stored}
    options = arguments | {"in_chans": channels}
    if image_size is not None and entries.get("fixed_input_size"):
        options["img_size"] = image_size
    try:
        if not parsed.weights:
            model = timm.create_model(name, pretrained=False, num_classes=0, **options)
            return Backbone(model, {"library": f"timm {timm.__version__}", "arguments": arguments})
        require_channels(text, entries.get("input_size", [3])[0], channels)
        classes = config.get("num_classes", entries.get("num_classes", 1000))
        whole = timm.create_model(name, pretrained=False, num_classes=classes, in_chans=channels, **arguments)
        expected = {key: list(tensor.shape) for key, tensor in whole.state_dict().items()}
        with safe_open(parsed.file, framework="pt") as file:
            found = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118, not a dictionary
        named = whole.pretrained_cfg.get("classifier") or ()
        heads = tuple(f"{head}." for head in ([named] if isinstance(named, str) else named))
        missing = [key for key in expected.keys() - found.keys() if not key.startswith(heads)]
        other = [key for key in expected.keys() & found.keys() if expected[key] != found[key]]
        require_complete(text, whole, missing, found.keys() - expected.keys(), other)
        source = {**entries, "file": str(parsed.file)}
        model = timm.create_model(name, pretrained=True, pretrained_cfg=source, num_classes=0, **options)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"encoder={text!r}: cannot be built or loaded: {first_line(error)}") from error
    preprocessing = of_timm(timm, timm.data.resolve_data_config({}, model=model), text, channels)
    return Backbone(model, {"library": f"timm {timm.__version__}", "arguments": arguments}, preprocessing)


BUILD: dict[str, Callable[..., Backbone]] = {"hf": build_hf, "timm": build_timm}
SAVED = {"hf": ("architecture",), "timm": ("library", "arguments")}  # entries of `encoder.json` besides the name


def published_backbone(
    text: str, *, channels: int, image_size: int | None, options: Mapping[str, Any], parsed: Published | None = None
) -> Backbone:
    """Builds a backbone of another library. Code from the hub is never run (``trust_remote_code`` stays off).

    Args:
        text: ``hf:NAME`` or ``timm:NAME``, see `parse_name`.
        channels: C.
        image_size: S in pixels.
        options: empty for a new encoder; for a loaded one, the saved entries, and then nothing is downloaded.
        parsed: what ``text`` means; default: `parse_name`.

    Returns:
        The module, images [B, C, S, S] → [B, F] or [B, F, h, w], the entries to save to build it again, and with weights
        the preprocessing of the library.

    Raises:
        InputError: the library is missing or broken, the name is unknown, or the architecture does not fit the images.
    """
    parsed = parsed or parse_name(text)
    for option, value in options.items():
        if option not in SAVED[parsed.kind]:
            raise InputError(f"{option}={value!r}: {text} takes no options; its architecture is set by the library")
    library = import_library(parsed.kind)
    return BUILD[parsed.kind](library, parsed, text, channels=channels, image_size=image_size, saved=dict(options))
