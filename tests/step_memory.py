"""The memory that a training step needs, measured in a fresh process."""

import subprocess
import sys

SCRIPT = """
import torch
from pathlib import Path
{step}
def memory(field):  # not ru_maxrss, which a child process inherits from its parent
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
step({small})  # excludes threads, kernels and code pages from the measurement
before = memory("VmRSS:")
step({large})
print(memory("VmHWM:") - before)
"""


def peak_mib(step, small, large):
    """Returns the peak of step(large) in MiB above the memory after step(small); ``step``: code that defines step(n)."""
    code = SCRIPT.format(step=step, small=small, large=large)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)
