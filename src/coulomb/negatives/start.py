"""Where a bank's slots start: random directions that are a function of (seed, slot), so that none need be stored."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.randomness import derive_seed

AT_ONCE = 2**22  # numbers made at a time


def _signed(bits: int) -> int:
    """64 bits as the integer that torch takes them for."""
    bits %= 2**64
    return bits - 2**64 if bits >= 2**63 else bits


STEP, FIRST, SECOND = (_signed(bits) for bits in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def initial_rows(slots: Tensor, dim: int, seed: int) -> Tensor:
    """Unit rows [M, dim] of the slots [M]: a uniform draw from the cube [−1, 1]^dim, normalised.

    The authors of instance discrimination draw from U(−√(3/dim), √(3/dim)), whose rows have length 1 on average. The
    numbers are those of SplitMix64 (Steele, Lea & Flood, 2014) at position slot·dim + column.
    """
    position = slots[:, None] * dim + torch.arange(dim, device=slots.device)
    bits = position * STEP + derive_seed(seed, "memory bank")
    bits = (bits ^ _right(bits, 30)) * FIRST
    bits = (bits ^ _right(bits, 27)) * SECOND
    bits = bits ^ _right(bits, 31)
    return normalize(_right(bits, 40).float() / 2**23 - 1, dim=1)


def start_of_all(slots: int, dim: int, seed: int) -> Tensor:
    """`initial_rows` of all slots."""
    return torch.cat([initial_rows(part, dim, seed) for part in torch.arange(slots).split(max(1, AT_ONCE // dim))])


def _right(bits: Tensor, by: int) -> Tensor:
    """Shift right, zeros coming in."""
    return (bits >> by) & (2 ** (64 - by) - 1)
