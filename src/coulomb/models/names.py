"""What the name of an encoder says by itself, before anything is looked up.

===============================  ==========================================================
name                             encoder
===============================  ==========================================================
``resnet18``, ``static``, …      built in, or of an installed package
``hf:NAME``, ``timm:NAME``       of another library, random weights; ``…@weights``: published
``run:PATH``, a folder, a file   weights on this machine
``mine.py:Net``                  the user's own code
===============================  ==========================================================
"""

from pathlib import Path
from typing import Any, NamedTuple

from coulomb.ground.errors import InputError
from coulomb.models.user_code import is_user_code

LIBRARIES = {"hf": "transformers", "timm": "timm"}  # prefix → the library that must be installed
EXAMPLES = {"hf": "hf:facebook/dinov2-small or hf:resnet", "timm": "timm:resnet18 or timm:vit_tiny_patch16_224@weights"}
AT_WEIGHTS = "@weights"
RUN = "run:"
PICKLES = (".bin", ".pth", ".pt", ".ckpt", ".pkl", ".pickle")


class Published(NamedTuple):
    """A parsed name: ``kind`` (hf or timm), ``name`` in the library, and whether published ``weights`` are used.

    A folder on this machine has a ``description``, the content of its config.json, and a ``file`` if its weights have another
    name than model.safetensors.
    """

    kind: str
    name: str
    weights: bool
    file: Path | None = None
    description: dict[str, Any] | None = None


def is_published(name: str | None) -> bool:
    """Returns True for ``hf:…`` and ``timm:…``."""
    return name is not None and name.partition(":")[0] in LIBRARIES and ":" in name


def parse_name(text: str) -> Published:
    """Parses ``hf:NAME`` or ``timm:NAME`` (random weights), optionally with ``@weights`` (published weights)."""
    kind, _, name = text.partition(":")
    weights = name.endswith(AT_WEIGHTS)
    name = name.removesuffix(AT_WEIGHTS)
    if not name:
        raise InputError(f"encoder={text!r}: must be {kind}:NAME, for example {EXAMPLES[kind]}")
    return Published(kind, name, weights)


def is_local(name: str | None) -> bool:
    """Returns True for ``run:PATH``, for a folder, and for the path of a file with weights."""
    if name is None or is_user_code(name) or is_published(name):
        return False
    looks_like_path = name.startswith((".", "/", "~")) or Path(name).suffix in (".safetensors", *PICKLES)
    return name.startswith(RUN) or looks_like_path or Path(name).is_dir()


def local_path(name: str) -> Path:
    """Returns the path that a local name gives."""
    return Path(name.removeprefix(RUN).removesuffix(AT_WEIGHTS)).expanduser()


def names_weights(name: str | None) -> bool:
    """Returns True for names of weights on this machine, and of published ones of another library."""
    return is_local(name) or (name is not None and is_published(name) and name.endswith(AT_WEIGHTS))
