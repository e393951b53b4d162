"""Stateless randomness: every draw comes from a generator seeded by its purpose, never by what was drawn before.

Resuming a run then needs no saved generator state, and the number of loader workers changes nothing.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(seed: int, *purpose: int | str) -> int:
    """A 63-bit seed from a run's ``seed`` and a ``purpose`` such as ``("views", step, rank)``; stable across machines."""
    text = "/".join([str(int(seed)), *(str(part) for part in purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: int | str, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator for one purpose, e.g. ``generator(seed, "views", step, rank)``."""
    made = torch.Generator(device=device)
    made.manual_seed(derive_seed(seed, *purpose))
    return made


def numpy_generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.default_rng(derive_seed(seed, *purpose))


@contextmanager
def seeded_initialisation(seed: int, *purpose: int | str) -> Iterator[None]:
    """Modules built inside get the same weights for the same ``seed`` and ``purpose``; the global RNG is restored.

    torch's layers initialise themselves from the default generator and take no other, so it is borrowed and given
    back. Modules are built on the CPU, as another device's generator would give other weights; inside
    ``torch.device("meta")`` they are built there, without memory or weights.
    """
    borrowed = torch.default_generator
    before = borrowed.get_state()
    borrowed.manual_seed(derive_seed(seed, *purpose))
    try:
        with torch.device("meta" if torch.get_default_device().type == "meta" else "cpu"):
            yield
    finally:
        borrowed.set_state(before)
