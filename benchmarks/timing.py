"""Interleaved timing, memory of the process, and the description of the machine."""

import datetime
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import coulomb
from coulomb.ground import machine

Run = Callable[[], object]
STATUS = Path("/proc/self/status")


def interleaved(
    runs: Mapping[str, Run], repeats: int, *, warmup: int = 1, synchronize: Callable[[], object] | None = None
) -> dict[str, list[float]]:
    """Returns the seconds of each run in each of ``repeats`` rounds, after ``warmup`` rounds.

    Every round times all runs, so that other load affects all of them, and the order rotates by one. The garbage collector
    is disabled meanwhile. ``synchronize`` waits for a device before each reading of the clock.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for round_number in range(warmup + repeats):
            for name, run in order:
                if synchronize is not None:
                    synchronize()
                start = time.perf_counter()
                result = run()
                if synchronize is not None:
                    synchronize()
                elapsed = time.perf_counter() - start
                del result
                if round_number >= warmup:
                    seconds[name].append(elapsed)
            order = order[1:] + order[:1]
    finally:
        if collecting:
            gc.enable()
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Returns the median time of each run."""
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def describe_machine() -> dict[str, Any]:
    """Returns processor, threads, memory, versions and date."""
    return {
        "processor": machine.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "products": machine.KERNEL,
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "coulomb": coulomb.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def resident_mib(field: str = "VmRSS") -> float:
    """Returns the resident memory of this process in MiB: ``"VmRSS"`` now, ``"VmHWM"`` at most so far.

    Unlike ``ru_maxrss``, the peak is not inherited from the parent process.
    """
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
