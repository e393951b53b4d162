"""``hf:NAME``: vision models of the transformers library."""

import inspect
import json
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.models.libraries import Published, broken


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


def build(
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
