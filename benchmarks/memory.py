"""Speed gained, and resident memory used, by keeping the memory of freed tensors: ``python -m benchmarks.memory``."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

from benchmarks.command import Json, command, show
from benchmarks.timing import interleaved, resident_mib
from coulomb.ground.errors import InputError
from coulomb.ground.machine import keep_freed_memory, processor
from coulomb.models import build_encoder

CASES = {"inference, 256 images": (256, False), "training, 128 images": (128, True)}
SIDE = 96  # pixels
STEP = "import sys; from benchmarks.memory import print_step; print_step(*sys.argv[1:])"  # of a fresh process


def bench_memory(repeats: int = 3, cases: Mapping[str, tuple[int, bool]] = CASES) -> dict[str, Any]:
    """Measures lite0 with and without `coulomb.ground.machine.keep_freed_memory`, each time in a new process, interleaved.

    Returns:
        ``{"processor", "threads", "repeats", "cases": {case: {"default", "kept", "ratio", "default_mib", "kept_mib"}}}``;
        medians in seconds, and the largest resident memory.

    Raises:
        InputError: ``repeats`` is too small.
    """
    if repeats < 1:
        raise InputError(f"repeats={repeats}: must be at least 1")
    found: dict[str, Any] = {}
    for name, (images, training) in cases.items():
        runs: dict[str, list[tuple[float, float]]] = {"default": [], "kept": []}
        for _ in range(repeats):
            for arm, kept in (("default", "0"), ("kept", "1")):
                environment = os.environ | {"COULOMB_KEEP_MEMORY": kept}
                fresh = [sys.executable, "-c", STEP, str(images), str(int(training))]
                done = subprocess.run(fresh, env=environment, capture_output=True, text=True, check=True)
                runs[arm].append(json.loads(done.stdout))
        case = {arm: median(time for time, _ in values) for arm, values in runs.items()}
        case["ratio"] = case["default"] / case["kept"]
        found[name] = case | {f"{arm}_mib": max(mib for _, mib in values) for arm, values in runs.items()}
    return {"processor": processor(), "threads": torch.get_num_threads(), "repeats": repeats, "cases": found}


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_memory` as a table."""
    lines = [
        f"lite0, {SIDE} pixels, {result['threads']} threads, median of {result['repeats']}, {result['processor']}",
        f"{'':26}{'malloc as it is':>20}{'memory kept':>20}{'faster':>9}",
    ]
    for name, case in result["cases"].items():
        arms = "".join(f"{case[arm]:>8.2f} s {case[f'{arm}_mib']:>5.0f} MiB" for arm in ("default", "kept"))
        lines.append(f"{name:26}{arms}{case['ratio']:>8.2f}×")
    return "\n".join(lines)


def measure(images: int, training: bool, repeats: int = 3) -> tuple[float, float]:
    """Returns the median seconds of one step of lite0 in this process, and the largest resident memory in MiB."""
    keep_freed_memory()
    network = build_encoder("lite0-random", channels=3, image_size=SIDE)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.train(training)
    batch = torch.rand(images, 3, SIDE, SIDE).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        with torch.set_grad_enabled(training):
            features = network(batch)
            if training:
                features.square().mean().backward()

    taken = interleaved({"step": step}, repeats)["step"]
    return median(taken), resident_mib("VmHWM")


def print_step(images: str, training: str) -> None:
    """Prints `measure` as JSON; runs in the fresh process. ``training``: "1", or "0" for inference."""
    sys.stdout.write(json.dumps(measure(int(images), training == "1")))


def main(as_json: Json = False) -> None:
    """Measure the speed that is gained by keeping the memory of freed tensors, as training does."""
    show(bench_memory(), as_json, render)


if __name__ == "__main__":
    command(main, "", "--json")
