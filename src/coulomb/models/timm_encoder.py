"""``timm:NAME``: the image models of timm."""

from types import ModuleType
from typing import Any

from torch import nn

from coulomb.errors import InputError, did_you_mean
from coulomb.models.libraries import Published


def build(
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
