"""`MatryoshkaLoss` beside the loss of its longest prefix alone and a loss per prefix: ``python -m benchmarks.prefixes``."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.timing import describe_machine, resident_mib
from coulomb.ground.errors import InputError
from coulomb.losses import InfoNCELoss, JointInfoNCELoss, MatryoshkaLoss, NTXentLoss, SupConLoss
from coulomb.losses.options import Loss

PAIRS, DIMS, TEMPERATURE = 4096, (64, 128, 256, 512, 1024), 0.05
STEP = "import sys; from benchmarks.prefixes import print_step; print_step(*sys.argv[1:])"  # of a fresh process
SAME = 1e-5  # relative difference of losses and of gradients' norms, beyond which a contestant computes something else

Step = Callable[[Tensor, Tensor], Tensor]


def pairs_of(loss: Loss) -> Step:
    """Returns the loss of queries and positives."""
    return loss


def labeled(loss: Loss) -> Step:
    """Returns the loss of two views of samples with eight samples per label."""
    return lambda query, positive: loss(torch.stack([query, positive], 1), torch.arange(len(query)) // 8)


# Name → (title, loss, how it is called)
LOSSES: dict[str, tuple[str, Callable[[], Loss], Callable[[Loss], Step]]] = {
    "one": ("InfoNCE, one direction", lambda: InfoNCELoss(TEMPERATURE), pairs_of),
    "both": ("InfoNCE, both directions", lambda: InfoNCELoss(TEMPERATURE, symmetric=True), pairs_of),
    "views": ("NT-Xent, two views", lambda: NTXentLoss(TEMPERATURE), pairs_of),
    "labels": ("SupCon, two views with labels", lambda: SupConLoss(TEMPERATURE), labeled),
    "joint": ("joint InfoNCE, all directions", lambda: JointInfoNCELoss(TEMPERATURE), pairs_of),
}


def longest(loss: Loss, call: Callable[[Loss], Step], dims: Sequence[int]) -> Step:
    """Returns the loss of the longest prefix."""
    return lambda query, positive: call(loss)(query[:, : dims[-1]], positive[:, : dims[-1]])


def together(loss: Loss, call: Callable[[Loss], Step], dims: Sequence[int]) -> Step:
    """Returns `MatryoshkaLoss`."""
    return call(MatryoshkaLoss(loss, dims))


def apart(loss: Loss, call: Callable[[Loss], Step], dims: Sequence[int]) -> Step:
    """Returns the sum of a loss per prefix."""
    return lambda query, positive: torch.stack([longest(loss, call, [dim])(query, positive) for dim in dims]).sum()


CONTESTANTS: dict[str, tuple[str, Callable[..., Step]]] = {
    "longest": ("the longest prefix alone", longest),
    "together": ("MatryoshkaLoss", together),
    "apart": ("a loss per prefix", apart),
}


def bench_prefixes(
    losses: Sequence[str] = (),
    pairs: int = PAIRS,
    dims: Sequence[int] = DIMS,
    repeats: int = 3,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures forward and backward, each figure in a fresh process; contestants take turns.

    Args:
        losses: names in `LOSSES`; by default all.
        pairs: number of pairs.
        dims: lengths of the prefixes, ascending.
        repeats: rounds; a figure is the median over rounds of the second step of a process.
        say: called with progress messages.

    Returns:
        ``{"machine", "repeats", "pairs", "dims", "rows": [{"loss", "contestants": {name: {"seconds", "processor", "peak_mib",
        "loss", "gradient"}}, "ratios": {name: {"seconds", "processor"}}, "same"}]}``. ``ratios`` are by the longest prefix's
        figure of the same round, the median; ``same``: the two ways of computing all prefixes have equal results.

    Raises:
        InputError: an unknown loss, or dims that are not ascending.
    """
    if unknown := sorted(set(losses) - set(LOSSES)):
        raise InputError(f"loss={', '.join(unknown)}: unknown; there are {', '.join(LOSSES)}")
    if list(dims) != sorted({*dims}) or not dims or dims[0] < 1:
        raise InputError(f"dims={list(dims)}: must be ascending numbers from 1")
    rows = []
    for loss in losses or LOSSES:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
        for turn in range(repeats):
            for name in CONTESTANTS:
                say(f"{LOSSES[loss][0]}, round {turn + 1} of {repeats}: {CONTESTANTS[name][0]}")
                runs[name].append(fresh(loss, name, pairs, dims))
        medians = {
            name: {figure: statistics.median(run[figure] for run in each) for figure in each[0]}
            for name, each in runs.items()
        }
        ratios = {
            name: {
                figure: statistics.median(a[figure] / b[figure] for a, b in zip(each, runs["longest"], strict=True))
                for figure in ("seconds", "processor")
            }
            for name, each in runs.items()
        }
        one, other = medians["together"], medians["apart"]
        same = all(abs(one[figure] / other[figure] - 1) < SAME for figure in ("loss", "gradient"))
        rows.append({"loss": loss, "contestants": medians, "ratios": ratios, "same": same})
    return {"machine": describe_machine(), "repeats": repeats, "pairs": pairs, "dims": list(dims), "rows": rows}


def fresh(loss: str, contestant: str, pairs: int, dims: Sequence[int]) -> dict[str, float]:
    """Returns seconds, processor seconds, peak MiB above the inputs, loss and norm of the gradients from a fresh process."""
    arguments = [sys.executable, "-c", STEP, loss, contestant, str(pairs), ",".join(map(str, dims))]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=os.environ)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def print_step(loss: str, contestant: str, pairs: str, dims: str) -> None:
    """Prints what `fresh` returns; runs in the fresh process. The first step shows the memory, the second the time."""
    lengths, draw = [int(dim) for dim in dims.split(",")], torch.Generator().manual_seed(0)
    query, noise = (torch.randn(int(pairs), lengths[-1], generator=draw) for _ in range(2))
    positive = (query + noise).requires_grad_()
    query.requires_grad_()
    _, make, call = LOSSES[loss]
    step = CONTESTANTS[contestant][1](make(), call, lengths)
    with contextlib.suppress(OSError):  # resets the recorded peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, peak = resident_mib("VmRSS"), 0.0
    for turn in range(2):
        query.grad = positive.grad = None
        start, used = time.perf_counter(), time.process_time()
        value = step(query, positive)
        value.backward()
        seconds, processor = time.perf_counter() - start, time.process_time() - used
        peak = peak if turn else max(0.0, resident_mib("VmHWM") - before)
    gradients: list[Any] = [query.grad, positive.grad]
    norm = float(torch.stack([grad.norm() for grad in gradients]).norm())
    figures = {
        "seconds": seconds,
        "processor": processor,
        "peak_mib": peak,
        "loss": float(value.detach()),
        "gradient": norm,
    }
    sys.stdout.write(json.dumps(figures))


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_prefixes` as text."""
    machine = result["machine"]
    lines = [
        f"{result['pairs']:,} pairs, prefixes of {', '.join(map(str, result['dims']))} dimensions, fp32, forward + backward; "
        f"medians of {result['repeats']} rounds of fresh processes; {machine['processor']}, {machine['threads']} threads, "
        f"torch {machine['torch']}, {machine['date']}"
    ]
    for row in result["rows"]:
        lines.append(f"{LOSSES[row['loss']][0]:30}{'ms':>8}{'×':>7}{'CPU ms':>9}{'×':>7}{'peak MiB':>10}")
        for name, figure in row["contestants"].items():
            ratio = row["ratios"][name]
            cells = f"{1000 * figure['seconds']:>8,.0f}{ratio['seconds']:>7.2f}"
            cells += f"{1000 * figure['processor']:>9,.0f}{ratio['processor']:>7.2f}{figure['peak_mib']:>10,.0f}"
            lines.append(f"  {CONTESTANTS[name][0]:28}{cells}")
        lines.append("  the same loss and gradient" if row["same"] else "  ANOTHER loss or gradient")
    return "\n".join(lines)


def main(
    loss: Annotated[
        list[str] | None, typer.Option(help=f"only this loss: {', '.join(LOSSES)}; may be repeated")
    ] = None,
    pairs: Annotated[int, typer.Option(help="number of pairs", min=2)] = PAIRS,
    dims: Annotated[str, typer.Option(help="lengths of the prefixes, ascending")] = ",".join(map(str, DIMS)),
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Measure the loss of all prefixes compared with the longest prefix alone, and with a loss per prefix."""
    try:
        lengths = [int(dim) for dim in dims.split(",")]
    except ValueError:
        raise InputError(f"dims={dims}: must be whole numbers with commas between them") from None
    with progress(quiet=as_json) as doing:
        result = bench_prefixes(loss or (), pairs, lengths, repeats, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--loss views --pairs 2048 --dims 32,64,128")
