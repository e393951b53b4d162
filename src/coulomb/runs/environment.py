"""What a run was made with."""

import importlib.metadata
import platform
from typing import Any

import torch

import coulomb
from coulomb.similarity import products


def environment() -> dict[str, Any]:
    """Versions, device and threads, for ``environment.json`` and the report."""
    packages = ("torch", "numpy", "lightning", "scikit-learn", "pillow", "pyarrow")
    cuda = torch.cuda.is_available()
    return {
        "coulomb": coulomb.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "device": torch.cuda.get_device_name() if cuda else platform.machine() + " CPU",
        "processor": products.processor(),
        "products": products.KERNEL,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
