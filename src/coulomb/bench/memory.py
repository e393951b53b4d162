"""Memory: what is free, and what a dense step would need."""

import contextlib
import os
from pathlib import Path

import torch

from coulomb.bench import dense
from coulomb.bench.cases import Case

SHARE = 0.75  # of the free memory that a contender may be expected to need


def free_bytes(device: str = "cpu") -> int:
    """Memory that new work can have, of the machine or of a GPU."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def dense_bytes(case: Case, itemsize: int | None = None) -> int:
    """About what the dense implementation needs for one step."""
    itemsize = itemsize or max(4, case.torch_dtype.itemsize)
    return dense.COPIES.get(case.dense, 6) * case.n * case.m * itemsize


def too_large(needed: int, device: str = "cpu") -> str | None:
    """Why ``needed`` bytes do not fit; None if they do."""
    free = free_bytes(device)
    if needed <= SHARE * free:
        return None
    return f"does not fit: needs about {_gb(needed)}, {_gb(free)} are free"


def _gb(count: int) -> str:
    return f"{count / 1e9:,.{0 if count >= 1e10 else 1}f} GB"
