"""Weights drawn from a seed, leaving the global generator as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from coulomb.randomness import derive_seed


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
