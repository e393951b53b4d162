"""Stateless randomness: every draw comes from a generator seeded by what it is for, never from what was drawn before.

Resuming a run then needs no saved generator state, and the number of loader workers changes nothing.
"""

import hashlib

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
