"""Stateless randomness: every draw comes from a generator seeded by its purpose, never by what was drawn before.

Resuming a run then needs no saved generator state, and the number of loader workers changes nothing.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(seed: int, *purpose: int | str) -> int:
    """Returns a 63-bit seed for a ``purpose`` such as ``("views", step, rank)``, the same on every machine."""
    text = "/".join([str(int(seed)), *(str(part) for part in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: int | str, device: str | torch.device = "cpu") -> torch.Generator:
    """Returns a torch generator for one purpose, e.g. ``generator(seed, "views", step, rank)``."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, *purpose))


def numpy_generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """Returns a NumPy generator for one purpose."""
    return np.random.default_rng(derive_seed(seed, *purpose))


def seed_layers(device: torch.device, seed: int, *purpose: int | str) -> None:
    """Seeds the global generators of the CPU and of ``device``, from which layers such as dropout draw.

    `torch.manual_seed` does so for every kind of device, and formats the call stack for each that is absent.
    """
    value = derive_seed(seed, *purpose)
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)


@contextmanager
def seeded_initialization(seed: int, *purpose: int | str) -> Iterator[None]:
    """Context in which modules are initialized from ``seed`` and ``purpose``; restores the global random state.

    Layers of torch only use the default generator, whose state is therefore replaced. Modules are built on the CPU,
    because generators of other devices give other weights; within ``torch.device("meta")`` they are built there, without
    memory or weights.

    >>> with seeded_initialization(0, "head"):
    ...     one = torch.nn.Linear(3, 2)
    >>> with seeded_initialization(0, "head"):
    ...     other = torch.nn.Linear(3, 2)
    >>> torch.equal(one.weight, other.weight)
    True
    """
    default = torch.default_generator
    before = default.get_state()
    default.manual_seed(derive_seed(seed, *purpose))
    try:
        with torch.device("meta" if torch.get_default_device().type == "meta" else "cpu"):
            yield
    finally:
        default.set_state(before)
