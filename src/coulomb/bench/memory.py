"""Memory: what is free, what a dense step would need, and what a step takes in a process of its own."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from coulomb.bench import dense
from coulomb.bench.cases import Case

STATUS = Path("/proc/self/status")
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


def peak_of_fresh_process(contender: str, case: Case) -> float | None:
    """MB that one step takes at its peak above its inputs, in a process of its own; None where that cannot be told."""
    if not STATUS.exists():
        return None
    told = json.dumps(dataclasses.asdict(case) | {"targets": ()})
    code = "import sys; from coulomb.bench.memory import print_peak; print_peak(*sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, contender, told], capture_output=True, text=True, check=False
    )
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def print_peak(contender: str, told: str) -> None:
    """For that process: the peak of its memory in its first step, in MB above what it held with its inputs made."""
    from coulomb.bench.inputs import make_inputs
    from coulomb.bench.peers import CONTENDERS

    case = Case(**json.loads(told))
    step = CONTENDERS[contender].make(case)
    inputs = make_inputs(case)
    with contextlib.suppress(OSError):  # forget earlier peaks
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _held("VmRSS")
    step(inputs)
    sys.stdout.write(f"{max(0.0, _held('VmHWM') - before)}")


def _held(field: str) -> float:
    # Not ru_maxrss: a child process starts with its parent's.
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
