"""How fast NT-Xent is and how much memory it takes, beside dense cross-entropy on the whole similarity matrix."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from coulomb.errors import InputError
from coulomb.losses import NTXentLoss
from coulomb.randomness import generator
from coulomb.similarity import products

TEMPERATURE = 0.5
TARGETS = {"speedup": 3.5, "memory_mb": 100}  # at 8192 × 128 on two cores


def bench_losses(n: int = 8192, dim: int = 128, repeats: int = 5, memory: bool = True) -> dict[str, Any]:
    """NT-Xent, forward and backward in fp32, on ``n`` rows (n/2 pairs of views) of ``dim`` numbers.

    Ours, the dense implementation and the floor (the matrix products alone: 4·n²·dim flops, because S = Sᵀ) take turns,
    so that a busy machine is busy for all; medians of ``repeats``. Peak memory is that of a fresh process each, above
    what it held once its inputs were made.

    Returns:
        ``{"n", "dim", "threads", "repeats", "parity": {"ok", "loss", "gradient"}, "seconds": {"coulomb", "dense", "floor",
        "floor_torch_mm"}, "speedup", "time_over_floor", "memory_mb": {"coulomb", "dense"}}``. ``parity`` holds the largest
        relative differences; where they are not those of rounding, ``ok`` is False and every speed is None. ``floor`` uses
        the kernel that ours uses, ``floor_torch_mm`` torch.mm. ``memory_mb`` is None where /proc is missing.

    Raises:
        InputError: n odd or below 4, dim or repeats below 1.
    """
    if n < 4 or n % 2:
        raise InputError(f"n must be an even number of rows, at least 4; got {n}")
    for name, value in (("dim", dim), ("repeats", repeats)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    parity = compare(n, dim)
    result: dict[str, Any] = {
        "n": n,
        "dim": dim,
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        "parity": parity,
    }
    names = ("coulomb", "dense", "floor", "floor_torch_mm")
    seconds: dict[str, float | None] = dict.fromkeys(names)
    if parity["ok"]:
        views = make_inputs(n, dim)
        runs: dict[str, Callable[[], object]] = {
            "coulomb": lambda: step(ours, *views),
            "dense": lambda: step(dense, *views),
            "floor": lambda: floor(n, dim, products.scores),
            "floor_torch_mm": lambda: floor(n, dim, _torch_mm),
        }
        seconds.update(interleaved(runs, repeats))
    result["seconds"] = seconds
    result["speedup"] = _ratio(seconds["dense"], seconds["coulomb"])
    result["time_over_floor"] = _ratio(seconds["coulomb"], seconds["floor"])
    result["memory_mb"] = {
        name: _memory_of_fresh_process(name, n, dim) if memory else None for name in ("coulomb", "dense")
    }
    return result


def render(result: dict[str, Any]) -> str:
    """A table of `bench_losses`' result for the terminal."""
    parity = result["parity"]
    lines = [
        f"NT-Xent forward + backward, fp32, {result['n']}×{result['dim']}, {result['threads']} threads, "
        f"median of {result['repeats']}",
        f"parity with dense: loss {parity['loss']:.1e}, gradient {parity['gradient']:.1e} "
        + ("(rounding)" if parity["ok"] else "— WRONG RESULT: no speed is reported"),
        f"{'':28}{'seconds':>10}{'peak MB above inputs':>24}",
    ]
    for name, label in (
        ("coulomb", "coulomb"),
        ("dense", "dense cross-entropy"),
        ("floor", "floor: products alone"),
        ("floor_torch_mm", "floor with torch.mm"),
    ):
        taken, held = result["seconds"][name], result["memory_mb"].get(name)
        lines.append(f"{label:28}{_cell(taken, '.3f'):>10}{_cell(held, ',.0f'):>24}")
    if result["speedup"] is not None:
        lines.append(f"{result['speedup']:.2f}× faster than dense; {result['time_over_floor']:.2f}× the floor")
    return "\n".join(lines)


def make_inputs(n: int, dim: int) -> tuple[Tensor, Tensor]:
    """Two views [n/2, dim], correlated as views are."""
    draws = generator(0, "bench", "losses")
    first, noise = (torch.randn(n // 2, dim, generator=draws) for _ in range(2))
    return first, first + noise


def ours(view0: Tensor, view1: Tensor) -> Tensor:
    """coulomb's NT-Xent."""
    loss: Tensor = NTXentLoss(TEMPERATURE)(view0, view1)
    return loss


def dense(view0: Tensor, view1: Tensor) -> Tensor:
    """The usual implementation: cross-entropy on the stored matrix, self removed by −inf."""
    rows = normalize(torch.cat([view0, view1]))
    scores = rows @ rows.T / TEMPERATURE
    scores.fill_diagonal_(-torch.inf)
    return cross_entropy(scores, torch.arange(len(rows)).roll(len(view0)))


def step(loss: Callable[[Tensor, Tensor], Tensor], view0: Tensor, view1: Tensor) -> tuple[Tensor, ...]:
    """(loss, gradient for view 0, gradient for view 1)."""
    leaves = view0.detach().requires_grad_(), view1.detach().requires_grad_()
    value = loss(*leaves)
    return value.detach(), *torch.autograd.grad(value, leaves)


def compare(n: int, dim: int) -> dict[str, Any]:
    """Largest relative differences of ours to dense, and whether they are those of fp32 rounding."""
    views = make_inputs(n, dim)
    mine, theirs = step(ours, *views), step(dense, *views)
    loss = float((mine[0] - theirs[0]).abs() / theirs[0].abs())
    gradient = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(mine[1:], theirs[1:], strict=True))
    return {"ok": loss <= 1e-5 and gradient <= 1e-4, "loss": loss, "gradient": gradient}


def floor(n: int, dim: int, product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """Matrix products of 4·n²·dim flops in all (to the nearest tile of 512): no exponential, no sums."""
    tile = min(512, n)
    queries, keys = torch.ones(tile, dim), torch.ones(tile, dim)
    buffer = torch.empty(tile * tile)
    for _ in range(max(1, round(2 * (n / tile) ** 2))):
        product(queries, keys, buffer)


def interleaved(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each, taking turns, after one warm-up round."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def print_peak_memory(name: str, n: int, dim: int) -> None:
    """For a fresh process: the peak of its memory in one step, in MB above what it held with its inputs made."""
    views = make_inputs(n, dim)
    before = _memory("VmRSS")
    step({"coulomb": ours, "dense": dense}[name], *views)
    sys.stdout.write(f"{_memory('VmHWM') - before}")


def _memory(field: str) -> float:
    # Not ru_maxrss: a child process starts with its parent's.
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def _memory_of_fresh_process(name: str, n: int, dim: int) -> float | None:
    if not Path("/proc/self/status").exists():
        return None
    code = f"from coulomb.bench.losses import print_peak_memory; print_peak_memory({name!r}, {n}, {dim})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def _torch_mm(queries: Tensor, keys: Tensor, buffer: Tensor) -> Tensor:
    return torch.mm(queries, keys.T, out=buffer.view(len(queries), len(keys)))


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def _cell(value: float | None, form: str) -> str:
    return "—" if value is None else format(value, form)
