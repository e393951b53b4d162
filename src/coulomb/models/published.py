"""Architectures of other libraries by name: ``hf:NAME`` (transformers) and ``timm:NAME``."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from torch import nn

from coulomb.errors import InputError

KINDS = {"hf": "transformers", "timm": "timm"}  # prefix → the library that must be installed
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


SAVED = {"hf": ("architecture",), "timm": ("library",)}  # what `encoder.json` keeps beside the name
EXAMPLES = {"hf": "hf:facebook/dinov2-small or hf:resnet", "timm": "timm:resnet18 or timm:vit_tiny_patch16_224@weights"}


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
    from coulomb.models import hf_encoder, timm_encoder

    build: Callable[..., tuple[nn.Module, dict[str, Any]]] = {"hf": hf_encoder.build, "timm": timm_encoder.build}[
        asked.kind
    ]
    for option, value in options.items():
        if option not in SAVED[asked.kind]:
            raise InputError(f"{option}={value!r} is no option of {text}: its architecture is the library's")
    library = installed(asked.kind)
    return build(library, asked, text, channels=channels, image_size=image_size, saved=dict(options))


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
