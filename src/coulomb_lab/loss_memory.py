"""Peak memory of NT-Xent, streamed by coulomb or with its similarity matrix stored."""

import contextlib
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from coulomb.ground.randomness import generator
from coulomb.losses import NTXentLoss

DIM, TEMPERATURE = 128, 0.5
STORED_COPIES = 4  # of the matrix at the peak of a stored step: similarities, probabilities, their gradient, a product
STATUS = Path("/proc/self/status")
FRESH = "import sys; from coulomb_lab.loss_memory import print_peak; print_peak(*sys.argv[1:])"


def stored_bytes(views: int) -> int:
    """Returns about how much memory a step needs that stores the similarity matrix in fp32."""
    return STORED_COPIES * views * views * 4


def peak_of_fresh_process(engine: str, views: int) -> float | None:
    """Returns the peak memory in MiB of one step above its inputs, in a fresh process; None if it cannot be measured.

    ``engine``: "streamed" or "stored".
    """
    if not STATUS.exists():
        return None
    command = [sys.executable, "-W", "ignore", "-c", FRESH, engine, str(views)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(run.stdout.split()[-1]) if run.returncode == 0 else None


def print_peak(engine: str, views: str) -> None:
    """Prints the peak memory of forward and backward in MiB above the inputs; runs in the fresh process."""
    draws = generator(0, "lab", "memory of the loss")
    first = torch.randn(int(views) // 2, DIM, generator=draws)
    pair = [view.requires_grad_() for view in (first, first + torch.randn(first.shape, generator=draws))]
    loss = NTXentLoss(TEMPERATURE) if engine == "streamed" else stored_ntxent
    with contextlib.suppress(OSError):  # resets the recorded peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _resident_mib("VmRSS")
    torch.autograd.grad(loss(*pair), pair)
    sys.stdout.write(f"{max(0.0, _resident_mib('VmHWM') - before)}")


def stored_ntxent(view0: Tensor, view1: Tensor) -> Tensor:
    """Returns NT-Xent computed from a stored similarity matrix."""
    rows = normalize(torch.cat([view0, view1]))
    similarities = (rows @ rows.T / TEMPERATURE).fill_diagonal_(-torch.inf)
    return cross_entropy(similarities, torch.arange(len(rows)).roll(len(view0)))


def _resident_mib(field: str) -> float:
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024
