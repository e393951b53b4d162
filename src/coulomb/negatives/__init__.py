"""Negatives from beyond the batch: a queue, a memory bank and a momentum encoder."""

from coulomb.negatives.memory_bank import MemoryBank
from coulomb.negatives.momentum_encoder import MomentumEncoder
from coulomb.negatives.queue import Queue

__all__ = ["MemoryBank", "MomentumEncoder", "Queue"]
