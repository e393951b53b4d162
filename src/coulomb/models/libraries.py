"""Encoders of other libraries: their names, ``hf:NAME`` (transformers) and ``timm:NAME``, and the library behind a name."""

from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from coulomb.errors import InputError

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
