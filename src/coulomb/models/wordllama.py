"""Token vectors of the PyPI package ``wordllama`` (MIT): files in the package are read, its code is not imported."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.reading import check_file, read_bytes
from coulomb.models.tokenizing import LARGEST_FILE, parse_tokenizer

PACKAGE = "wordllama"
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
REINSTALL = f"install it again: pip install --force-reinstall {PACKAGE}"


def package_folder() -> Path:
    """Returns the folder of the package; raises `InputError` with the command that installs it."""
    spec = find_spec(PACKAGE)  # does not execute the package
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"encoder='static': its token vectors are not installed: pip install {PACKAGE} (or 'coulomb[text]'), or give "
            "static-random"
        )
    return Path(spec.submodule_search_locations[0])


def read_vectors() -> Tensor:
    """Returns the vectors of the 32,000 tokens, float32 [32000, 256]."""
    path = package_folder() / WEIGHTS
    check_file(path, most=LARGEST_FILE, remedy=REINSTALL)
    try:
        tensors = load_file(path)
        return tensors["embedding.weight"].float()
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(f"encoder='static': {path} is damaged ({error}); {REINSTALL}") from None


def read_tokenizer() -> Any:
    """Returns the tokenizer of the vectors; like wordllama, it adds no special tokens."""
    path = package_folder() / TOKENIZER
    content = read_bytes(path, most=LARGEST_FILE, remedy=REINSTALL).decode()
    return parse_tokenizer(content, path, special_tokens=False)
