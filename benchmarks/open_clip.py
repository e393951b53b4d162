"""Memory that losses for open_clip hold for the backward pass, beside open_clip's: ``python -m benchmarks.open_clip``."""

import contextlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.command import Json, command, progress, show
from benchmarks.contenders import UnavailableError
from benchmarks.timing import describe_machine
from benchmarks.translations import from_file
from coulomb.ground.errors import InputError
from coulomb.integrations import open_clip as drop_in

ROWS = (512, 1024, 2048, 4096, 8192)
DIM = 64
CHUNK = 64  # rows of a chunk of SigLipLoss
MIB = 2**20

Loss = Callable[..., Tensor]


def contestants(theirs: ModuleType | None) -> dict[str, Loss]:
    """Returns the losses by label; those of open_clip from its file, if there is one."""
    made: dict[str, Loss] = {"coulomb ClipLoss": drop_in.ClipLoss(), "coulomb SigLipLoss": drop_in.SigLipLoss()}
    if theirs is None:
        return made
    made |= {"open_clip ClipLoss": theirs.ClipLoss(), "open_clip SigLipLoss": theirs.SigLipLoss()}
    with contextlib.suppress(TypeError):  # 3.3 has no chunk_size
        made[f"open_clip SigLipLoss, chunk_size={CHUNK}"] = theirs.SigLipLoss(chunk_size=CHUNK)
    return made


def held_bytes(loss: Loss, given: Sequence[Tensor]) -> int:
    """Returns how many bytes the forward pass allocates and does not free: what waits for the backward pass.

    As torch's profiler counts them on this thread, so that what Python objects hold counts as well.
    """
    loss(*given).backward()  # what is allocated once
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        value = loss(*given)
    total = sum(event.self_cpu_memory_usage for event in profile.events())
    del value
    return int(total)


def bench_open_clip(
    rows: Sequence[int] = ROWS, file: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Measures the memory held for the backward pass, with one thread.

    Args:
        rows: numbers of pairs.
        file: open_clip's ``src/open_clip/loss.py``; None: of the installed package.
        say: called with progress messages.

    Returns:
        ``{"machine", "rows", "mib": {label: [MiB for each of rows]}, "skipped": reason or None}``.

    Raises:
        InputError: numbers below 2, or no such file.
    """
    if min(rows) < 2:
        raise InputError(f"rows={min(rows)}: must be at least 2")
    theirs, skipped = None, None
    try:
        theirs = from_file("open_clip", "loss.py", "open_clip_torch") if file is None else loaded_file(file)
    except UnavailableError as reason:
        skipped = str(reason)
    mib: dict[str, list[float]] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for label, loss in contestants(theirs).items():
            for n in rows:
                say(f"{label}: {n:,} pairs")
                mib.setdefault(label, []).append(held_bytes(loss, sample(n)) / MIB)
    finally:
        torch.set_num_threads(threads)
    return {"machine": describe_machine(), "rows": list(rows), "mib": mib, "skipped": skipped}


def loaded_file(file: Path) -> ModuleType:
    """Returns a Python file as a module."""
    if not file.is_file():
        raise InputError(f"file={file}: no such file")
    spec = importlib.util.spec_from_file_location("their_loss", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sample(n: int) -> list[Tensor]:
    """Returns images, texts, scale and bias with gradient."""
    draw = torch.Generator().manual_seed(0)
    sides = [normalize(torch.randn(n, DIM, generator=draw), dim=1).requires_grad_() for _ in range(2)]
    return [*sides, torch.tensor(14.0, requires_grad=True), torch.tensor(-10.0, requires_grad=True)]


def render(result: dict[str, Any]) -> str:
    """Returns the result as text."""
    lines = [
        f"MiB held between forward and backward, D = {DIM}, fp32, torch {result['machine']['torch']}",
        f"{'pairs':38}" + "".join(f"{n:>9,}" for n in result["rows"]),
    ]
    lines += [f"{label:38}" + "".join(f"{each:>9.2f}" for each in mib) for label, mib in result["mib"].items()]
    if result["skipped"]:
        lines.append(f"open_clip: {result['skipped']}")
    return "\n".join(lines)


def main(
    rows: Annotated[list[int] | None, typer.Option(help="pairs; may be repeated")] = None,
    file: Annotated[Path | None, typer.Option(help="loss.py of open_clip, in place of the installed one")] = None,
    as_json: Json = False,
) -> None:
    """Measure the memory that losses hold between forward and backward, compared with open_clip."""
    with progress(quiet=as_json) as doing:
        result = bench_open_clip(rows or ROWS, file, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--rows 512 --rows 1024 --rows 2048")
