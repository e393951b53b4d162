"""Parity and speed of every loss on one NVIDIA GPU, in under ten minutes: python benchmarks/gpu.py --out results.json

First every exported loss in fp32 and bf16, by either backend, against dense PyTorch in fp64 on small problems; then the
streaming engine's large problems beside dense eager, dense compiled and F.linear_cross_entropy, with peak memory and the
time that the matrix products alone take at the rate of one large torch.mm. A case whose result is wrong gets no time.

``--device cpu --quick`` runs the same on tiny problems, to see that the script works.
"""

# ruff: noqa: T201

import argparse
import datetime
import json
import statistics
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from coulomb.bench.cases import Case, Inputs, make_inputs, ntxent
from coulomb.bench.contenders import Step, UnavailableError, bind, ours
from coulomb.bench.losses import SMALL
from coulomb.bench.measure import Bench, compare, reference
from coulomb.bench.timing import interleaved, medians
from coulomb.similarity import use_backend

DTYPES = ("bfloat16", "float32")
RIVALS = ("dense", "compiled", "linear_cross_entropy")


def infonce(n: int, dim: int, both: bool) -> Case:
    """In-batch InfoNCE, one direction or both."""
    name = f"infonce{'-both' if both else ''}-{n}x{dim}"
    options = {"temperature": 0.07, "symmetric": both}
    title = f"InfoNCE, {'both directions' if both else 'one direction'}, {n:,} × {dim}"
    return Case(name, title, "InfoNCELoss", options, "pairs", n, n, dim, "infonce", 8 if both else 6)


def speed_cases() -> list[Case]:
    """The streaming engine's cases, the small ones first."""
    n, k = 65536, 262144
    titles = f"SupCon, {n:,} × 128", f"Queue, 8,192 × {k:,} × 256"
    supcon = Case("supcon", titles[0], "SupConLoss", {"temperature": 0.5}, "labelled_views", n, n, 128, "supcon", 4)
    queue = Case("queue", titles[1], "InfoNCELoss", {"temperature": 0.07}, "queue", 8192, k, 256, "infonce", 4)
    small, large = (
        [infonce(4096, 512, False), infonce(32768, 512, True)],
        [infonce(n, 768, both) for both in (False, True)],
    )
    return [*small, ntxent(n, 128), supcon, queue, *large]


def check_parity(device: str, n: int) -> list[dict[str, Any]]:
    """Every loss, type and backend against dense fp64."""
    rows = []
    for case in (replace(case, n=n, m=n, dtype=dtype) for case in SMALL for dtype in DTYPES):
        for backend in ("dense", "streaming"):
            row: dict[str, Any] = {"name": case.title, "dtype": case.dtype, "backend": backend, "error": ""}
            try:
                inputs = make_inputs(case, device)
                right = reference(case, inputs)
                assert right is not None
                with use_backend(backend):
                    row |= compare(ours(case), inputs, right)
            except Exception as error:  # one loss must not hide the others
                row |= {"ok": False, "error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
    return rows


def rate(dtype: torch.dtype, device: str, n: int) -> float:
    """Flops a second of one n × n × n torch.mm."""
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty(n, n, device=device, dtype=dtype)
    seconds = interleaved({"mm": lambda: torch.mm(a, b, out=out)}, 10, warmup=3, synchronize=waiting(device))["mm"]
    return 2 * n**3 / statistics.median(seconds)


def measure(case: Case, device: str, flops_a_second: float, repeats: int, rivals: tuple[str, ...]) -> dict[str, Any]:
    """One case: parity, then medians in turns, and peak memory of one step each."""
    result: dict[str, Any] = {"name": case.name, "title": case.title, "dtype": case.dtype, "reason": ""}
    result |= {"parity": None, "seconds": {}, "memory_mb": {}, "skipped": {}, "speedup": {}, "time_over_floor": None}
    try:
        inputs = make_inputs(case, device)
        right = reference(case, inputs)
        if right is None:
            return result | {"reason": "no reference fits the memory"}
        step = ours(case)
        result["parity"] = compare(step, inputs, right)
    except (UnavailableError, RuntimeError) as error:
        return result | {"reason": f"{type(error).__name__}: {error}"[:300]}
    if not result["parity"]["ok"]:
        return result | {"reason": "wrong result: no speed is reported"}
    steps, result["skipped"] = Bench(contenders=rivals).rivals(case, inputs, right)
    steps = {"coulomb": step} | steps
    del right
    runs = {name: bind(each, inputs) for name, each in steps.items()}
    result["seconds"] = seconds = medians(interleaved(runs, repeats, warmup=2, synchronize=waiting(device)))
    if device == "cuda":
        result["memory_mb"] = {name: peak_mb(each, inputs) for name, each in steps.items()}
    result["speedup"] = {name: taken / seconds["coulomb"] for name, taken in seconds.items() if name != "coulomb"}
    result["floor_seconds"] = case.flops / flops_a_second
    result["time_over_floor"] = seconds["coulomb"] / result["floor_seconds"]
    return result


def peak_mb(step: Step, inputs: Inputs) -> float:
    """Of the GPU's memory, above the inputs."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(inputs)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def waiting(device: str) -> Any:
    """What waits for the device."""
    return torch.cuda.synchronize if device == "cuda" else None


def run(device: str, quick: bool, repeats: int, minutes: float) -> dict[str, Any]:
    """All of it, as one JSON object; cases for which there is no time left are named."""
    started = time.monotonic()
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(sys.argv),
    }
    result["parity"] = check_parity(device, 32 if quick else 512)
    rates = {dtype: rate(getattr(torch, dtype), device, 64 if quick else 8192) for dtype in DTYPES}
    result["tflops_of_torch_mm"] = {dtype: flops / 1e12 for dtype, flops in rates.items()}
    result["speed"], result["no_time_for"] = [], []
    for case in speed_cases():
        for dtype in DTYPES:
            sized = replace(case, dtype=dtype)
            if quick:
                sized = replace(
                    sized, title=f"tiny: {case.name}", n=64, m=128 if case.inputs == "queue" else 64, dim=16
                )
            if time.monotonic() - started > 60 * minutes:
                result["no_time_for"].append(f"{case.name} {dtype}")
                continue
            late = time.monotonic() - started > 30 * minutes  # compiling takes longest
            rivals = tuple(name for name in RIVALS if name != "compiled" or not (quick or late))
            result["speed"].append(measure(sized, device, rates[dtype], repeats, rivals))
            print(line(result["speed"][-1]), flush=True)
    return result


def line(case: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"{case['title']:46}{case['dtype']:10}"
    if case["reason"]:
        return f"{head}{case['reason']}"
    held = case["memory_mb"].get("coulomb")
    own = f"{1e3 * case['seconds']['coulomb']:9.2f} ms {case['time_over_floor']:6.2f} × floor"
    own += "" if held is None else f" {held:8,.0f} MB"
    others = [f"{name} {speedup:.2f}×" for name, speedup in case["speedup"].items()]
    return f"{head}{own}  " + ", ".join([*others, *(f"{name}: {why}" for name, why in case["skipped"].items())])


def main() -> None:
    """Parse, run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="tiny problems, nothing compiled")
    parser.add_argument("--repeats", type=int, default=10, help="rounds; medians of them are reported")
    parser.add_argument("--minutes", type=float, default=9.0, help="start no case after this long")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device; --device cpu --quick shows that the script works")
    result = run(options.device, options.quick, options.repeats, options.minutes)
    wrong = [row for row in result["parity"] if not row["ok"]]
    print(f"parity: {len(result['parity']) - len(wrong)} of {len(result['parity'])} right")
    for row in wrong:
        found = row["error"] or f"loss {row['loss']:.1e}, gradient {row['gradient']:.1e}, allowed {row['tolerance']}"
        print(f"  {row['name']}, {row['dtype']}, {row['backend']}: {found}")
    for name in result["no_time_for"]:
        print(f"no time left for {name}")
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
