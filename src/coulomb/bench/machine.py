"""The machine of a benchmark."""

import datetime
import os
import platform
from typing import Any

import torch

import coulomb
from coulomb.similarity import products


def describe_machine() -> dict[str, Any]:
    """Processor, threads, memory, versions and the date."""
    return {
        "processor": products.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "products": products.KERNEL,
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "coulomb": coulomb.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
