"""What a step takes at its peak, in a process of its own."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from coulomb.bench.cases import Case
from coulomb.bench.inputs import make_inputs
from coulomb.bench.peers import CONTENDERS

STATUS = Path("/proc/self/status")


def peak_of_fresh_process(contender: str, case: Case) -> float | None:
    """MB that one step takes at its peak above its inputs, in a process of its own; None where that cannot be told."""
    if not STATUS.exists():
        return None
    told = json.dumps(dataclasses.asdict(case) | {"targets": ()})
    code = "import sys; from coulomb.bench.peak import print_peak; print_peak(*sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, contender, told], capture_output=True, text=True, check=False
    )
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def print_peak(contender: str, told: str) -> None:
    """For that process: the peak of its memory in its first step, in MB above what it held with its inputs made."""
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
