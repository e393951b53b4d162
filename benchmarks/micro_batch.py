"""Time and memory of gradient caching: ``python -m benchmarks.micro_batch``."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Annotated, Any

import torch
import typer

from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.timing import describe_machine, interleaved, resident_mib
from coulomb.ground.errors import InputError
from coulomb.ground.machine import keep_freed_memory
from coulomb.methods import SimCLR
from coulomb.models import ViewRows, build_encoder

SIDE = 32  # pixels, as in CIFAR
STEP = "import sys; from benchmarks.micro_batch import print_memory; print_memory(*sys.argv[1:])"  # of a fresh process


def bench_micro_batch(
    encoder: str = "resnet18",
    batch: int = 256,
    micro_batch: int = 64,
    large: int = 4096,
    repeats: int = 3,
    say: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Measures a step of SimCLR (two views, float32, SGD) with and without gradient caching, on random images of CIFAR's size.

    Args:
        encoder: a built-in encoder.
        batch: images per step for the times, which alternate in one process, and for the memory without gradient caching.
        micro_batch: views that the encoder takes at a time.
        large: images of the step whose memory is measured, in a process of its own; 0 for none.
        repeats: rounds, of which medians are reported.
        say: receives a line before each measurement.

    Returns:
        The arguments and the machine; ``seconds`` of ``plain`` and ``cached`` and their ``ratio``, and the
        same for ``processor_seconds``, which other load affects less; ``memory``: by case, the
        ``peak`` and the memory ``before`` the step in MiB, and ``seconds``.

    Raises:
        InputError: a number is too small.
    """
    given = {"batch": batch, "micro_batch": micro_batch, "repeats": repeats}
    for name, least in (("batch", 2), ("micro_batch", 2), ("repeats", 1)):
        if given[name] < least:
            raise InputError(f"{name}={given[name]}: must be at least {least}")
    if large and large < batch:
        raise InputError(f"large={large}: must be at least batch={batch}, or 0")
    say(f"timing steps of {batch} images")
    steps = {"plain": training_step(encoder, batch, None), "cached": training_step(encoder, batch, micro_batch)}
    used: dict[str, list[float]] = {name: [] for name in steps}

    def counted(name: str) -> None:
        begin = time.process_time()
        steps[name]()
        used[name].append(time.process_time() - begin)

    taken = interleaved({name: partial(counted, name) for name in steps}, repeats)
    seconds = {name: median(values) for name, values in taken.items()}
    processor = {name: median(values[1:]) for name, values in used.items()}  # without the first, a warm-up
    memory = {}
    for images, size in [(batch, None), (batch, micro_batch), *([(large, micro_batch)] if large else [])]:
        name = f"{images} images" + ("" if size is None else f", micro-batch {size}")
        say(f"memory of {name}")
        fresh = [sys.executable, "-c", STEP, encoder, str(images), str(size or 0)]
        memory[name] = json.loads(subprocess.run(fresh, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return {
        "machine": describe_machine(),
        "encoder": encoder,
        **given,
        "seconds": seconds,
        "ratio": seconds["cached"] / seconds["plain"],
        "processor_seconds": processor,
        "processor_ratio": processor["cached"] / processor["plain"],
        "memory": memory,
    }


def training_step(encoder: str, images: int, micro_batch: int | None) -> Callable[[], None]:
    """Returns a function that makes one update of SimCLR on two views of random images."""
    keep_freed_memory()
    network = build_encoder(encoder, channels=3, image_size=SIDE)
    network.micro_batch = micro_batch
    method = SimCLR(SimCLR.tower_for(network)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    views = [torch.rand(images, 3, SIDE, SIDE).contiguous(memory_format=torch.channels_last) for _ in range(2)]
    optimizer = torch.optim.SGD(method.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        method(ViewRows.of(views)).backward()
        optimizer.step()

    return step


def measure_memory(encoder: str, images: int, micro_batch: int | None) -> dict[str, float]:
    """Returns the resident memory of this process before one step and its peak, in MiB, and the seconds of the step."""
    step = training_step(encoder, images, micro_batch)
    before = resident_mib()
    seconds = interleaved({"step": step}, 1, warmup=0)["step"][0]
    return {"before": before, "peak": resident_mib("VmHWM"), "seconds": seconds}


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_micro_batch` as a table."""
    machine, seconds, used = result["machine"], result["seconds"], result["processor_seconds"]
    return "\n".join(
        [
            f"SimCLR, {result['encoder']}, {SIDE} pixels, two views, {machine['threads']} threads, {machine['processor']}",
            f"one step of {result['batch']} images, median of {result['repeats']}: plain {seconds['plain']:.2f} s, "
            f"micro-batches of {result['micro_batch']} views {seconds['cached']:.2f} s: {result['ratio']:.2f} times",
            f"processor time: plain {used['plain']:.2f} s, micro-batches {used['cached']:.2f} s: "
            f"{result['processor_ratio']:.2f} times",
            f"{'memory of a process':34}{'before the step':>16}{'peak':>12}{'time':>10}",
            *(
                f"{name:34}{case['before']:>12.0f} MiB{case['peak']:>8.0f} MiB{case['seconds']:>8.1f} s"
                for name, case in result["memory"].items()
            ),
        ]
    )


def print_memory(encoder: str, images: str, size: str) -> None:
    """Prints `measure_memory` as JSON; runs in the fresh process. ``size``: views per micro-batch, 0 for none."""
    sys.stdout.write(json.dumps(measure_memory(encoder, int(images), int(size) or None)))


def main(
    encoder: Annotated[str, typer.Option(help="a built-in encoder")] = "resnet18",
    batch: Annotated[int, typer.Option(help="images of the step that is timed", min=2)] = 256,
    micro_batch: Annotated[int, typer.Option(help="views that the encoder takes at a time", min=2)] = 64,
    large: Annotated[int, typer.Option(help="images of the step whose memory is measured; 0: none", min=0)] = 4096,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Measure gradient caching: time of a training step compared with a plain step, and memory of a large batch."""
    with progress(quiet=as_json) as doing:
        result = bench_micro_batch(encoder, batch, micro_batch, large, repeats, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--large 0 --json")
