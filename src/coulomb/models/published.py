"""Encoders of other libraries, built for the images of a run."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from coulomb.errors import InputError
from coulomb.models import hf_encoder, timm_encoder
from coulomb.models.libraries import installed, parse

BUILD: dict[str, Callable[..., tuple[nn.Module, dict[str, Any]]]] = {"hf": hf_encoder.build, "timm": timm_encoder.build}
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
