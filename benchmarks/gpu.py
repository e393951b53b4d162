"""Parity and speed of every loss on one NVIDIA GPU, in under ten minutes.

    python -m benchmarks.gpu --out results.json

First every exported loss in fp32 and bf16, by each backend, against dense PyTorch in fp64 on small problems. Then large
problems, those first that matter most: what coulomb chooses, its tiles, its attention passes and its drop-ins, compared
with dense eager, dense compiled, F.linear_cross_entropy and the libraries that are installed, with peak memory and the time
that the matrix products alone take at the rate of one large torch.mm. A result that is wrong gets no time. In between, the
parts of a training step: decoding per core, views, network and loss, plain and compiled. Last, one table to paste. What no
time was left for is named.

``--device cpu --quick`` runs the same on tiny problems, to see that the script works.
"""

import datetime
import io
import itertools
import json
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image

from benchmarks.cases import Case, Inputs, make_inputs, ntxent
from benchmarks.command import command
from benchmarks.contenders import DROP_INS, PEERS, Step, UnavailableError, bind, ours
from benchmarks.losses import SMALL
from benchmarks.measure import Bench, Reference, compare, reference
from benchmarks.timing import interleaved, medians
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.kinds.image.decode import to_canvas
from coulomb.kinds.image.views import make_views
from coulomb.losses import InfoNCELoss, NTXentLoss
from coulomb.models import build_encoder
from coulomb.similarity import use_backend

DTYPES = ("bfloat16", "float32")
BACKENDS = ("dense", "streaming", "attention")
RIVALS = ("dense", "compiled", *PEERS, *DROP_INS)
NETWORKS = (
    ("resnet18", 32, 1024, "small-natural"),
    ("resnet18", 224, 256, "natural"),
    ("resnet50", 224, 256, "natural"),
)


PREFIXES = (64, 128, 256, 512, 1024)


def infonce(n: int, dim: int, both: bool) -> Case:
    """Returns a case of in-batch InfoNCE, one direction or both."""
    name = f"infonce{'-both' if both else ''}-{n}x{dim}"
    options = {"temperature": 0.07, "symmetric": both}
    title = f"InfoNCE, {'both directions' if both else 'one direction'}, {n:,} × {dim}"
    return Case(name, title, "InfoNCELoss", options, "pairs", n, n, dim, "infonce", 8 if both else 6)


def square(name: str, title: str, kind: str, inputs: str, size: tuple[int, int], products: int, **options: Any) -> Case:
    """Returns a case with as many keys as queries; the name is the name of the dense function."""
    n, dim = size
    return Case(name, f"{title}, {n:,} × {dim}", kind, options, inputs, n, n, dim, name, products)


def speed_cases() -> list[Case]:
    """Returns the large cases, those first that matter most."""
    n, k, pairs = 65536, 262144, (32768, 512)
    queue = Case(
        "queue",
        f"Queue, 8,192 × {k:,} × 256",
        "InfoNCELoss",
        {"temperature": 0.07},
        "queue",
        8192,
        k,
        256,
        "infonce",
        4,
    )
    both = {"temperature": 0.07, "symmetric": True}
    guided = {**both, "guide_margin": 0.1}
    return [
        infonce(*pairs, True),
        ntxent(n, 128),
        queue,
        square("supcon", "SupCon", "SupConLoss", "labeled_views", (n, 128), 4, temperature=0.5),
        square("infonce_ids", "InfoNCE, both directions, ids", "InfoNCELoss", "pairs with ids", pairs, 8, **both),
        square("infonce_guide", "InfoNCE, both directions, guide", "InfoNCELoss", "pairs with a guide", pairs, 8, **guided),
        square(
            "matryoshka", f"Prefixes of {', '.join(map(str, PREFIXES))}", "MatryoshkaLoss", "pairs", (16384, PREFIXES[-1]), 8,
            loss=InfoNCELoss(0.07), dims=PREFIXES,
        ),
        square(
            "distillation", "Distillation", "DistillationLoss", "pairs, one side learning", (32768, 384), 8, temperature=0.2,
            teacher_temperature=0.05,
        ),
        square("joint_infonce", "InfoNCE, four directions", "JointInfoNCELoss", "pairs", (16384, 512), 16, temperature=0.05),
        square("sigmoid", "Sigmoid", "SigmoidLoss", "pairs", pairs, 8, scale=10.0, bias=-10.0, learnable=False),
        infonce(4096, 512, False),
        infonce(n, 768, False),
        infonce(n, 768, True),
    ]  # fmt: skip


BEFORE_TRAINING = 4  # cases; the others come after the training steps


def tiny(case: Case) -> Case:
    """Returns a case that a CPU computes in milliseconds."""
    options = {**case.options, "dims": (4, 8, 16)} if "dims" in case.options else case.options
    m = 128 if case.inputs == "queue" else 64
    return replace(case, title=f"tiny: {case.name}", n=64, m=m, dim=16, options=options)


def check_parity(device: str, n: int) -> list[dict[str, Any]]:
    """Compares every loss, type and backend with dense fp64; returns one row each."""
    rows = []
    for case in (replace(case, n=n, m=n, dtype=dtype) for case in SMALL for dtype in DTYPES):
        for backend in BACKENDS:
            row: dict[str, Any] = {"name": case.title, "dtype": case.dtype, "backend": backend, "error": ""}
            try:
                inputs = make_inputs(case, device)
                right = reference(case, inputs)
                assert right is not None
                with use_backend(backend) as chosen:
                    row |= compare(ours(case), inputs, right) | {"engines": dict(chosen.engines)}
            except Exception as error:  # one loss must not hide the others
                row |= {"ok": False, "error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
    return rows


def rate(dtype: torch.dtype, device: str, n: int) -> float:
    """Returns the flops per second of one n × n × n torch.mm."""
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty(n, n, device=device, dtype=dtype)
    seconds = interleaved({"mm": lambda: torch.mm(a, b, out=out)}, 10, warmup=3, synchronize=waiting(device))["mm"]
    return 2 * n**3 / statistics.median(seconds)


def measure(case: Case, device: str, flops_per_second: float, repeats: int, rivals: tuple[str, ...]) -> dict[str, Any]:
    """One case: parity, then interleaved medians, and peak memory of one step each."""
    result: dict[str, Any] = {"name": case.name, "title": case.title, "dtype": case.dtype, "reason": ""}
    result |= {
        "parity": None,
        "seconds": {},
        "memory_mb": {},
        "skipped": {},
        "speedup": {},
        "time_over_floor": None,
        "engines": {},
    }
    try:
        inputs = make_inputs(case, device)
        right = reference(case, inputs)
        if right is None:
            return result | {"reason": "no reference fits the memory"}
        step, chosen = by_backend(ours(case), "auto")
        result["parity"], result["engines"] = compare(step, inputs, right), chosen
    except (UnavailableError, RuntimeError) as error:
        return result | {"reason": f"{type(error).__name__}: {error}"[:300]}
    if not result["parity"]["ok"]:
        return result | {"reason": "wrong result: no speed is reported"}
    steps, result["skipped"] = Bench(contenders=rivals).rivals(case, inputs, right)
    own, reasons = own_steps(case, inputs, right)
    steps, result["skipped"] = {"coulomb": step} | own | steps, result["skipped"] | reasons
    del right
    runs = {name: bind(each, inputs) for name, each in steps.items()}
    result["seconds"] = seconds = medians(interleaved(runs, repeats, warmup=2, synchronize=waiting(device)))
    if device == "cuda":
        result["memory_mb"] = {name: peak_mb(each, inputs) for name, each in steps.items()}
    result["speedup"] = {name: taken / seconds["coulomb"] for name, taken in seconds.items() if name != "coulomb"}
    result["floor_seconds"] = case.flops / flops_per_second
    result["time_over_floor"] = seconds["coulomb"] / result["floor_seconds"]
    return result


def by_backend(step: Step, backend: str) -> tuple[Step, dict[str, int]]:
    """Returns a step by one backend, and the dict in which it counts the problems that each engine reduced."""
    chosen: dict[str, int] = {}

    def run(inputs: Inputs) -> tuple[torch.Tensor, ...]:
        with use_backend(backend) as used:
            result = step(inputs)
        chosen.update(used.engines)
        return result

    return run, chosen


def own_steps(case: Case, inputs: Inputs, right: Reference) -> tuple[dict[str, Step], dict[str, str]]:
    """Returns the steps by tiles and by attention passes that are right, and the reasons why others are left out."""
    steps, reasons = {}, {}
    for name, backend in (("tiles", "streaming"), ("attention", "attention")):
        step, chosen = by_backend(ours(case), backend)
        try:
            errors = compare(step, inputs, right)
        except Exception as error:  # a kernel that does not compile must not end the benchmark
            reasons[name] = f"{type(error).__name__}: {error}"[:300]
            continue
        if name == "attention" and name not in chosen:
            reasons[name] = "; ".join(chosen)  # the tiles took its place
        elif errors["ok"]:
            steps[name] = step
        else:
            reasons[name] = f"differs: loss by {errors['loss']:.0e}, gradient by {errors['gradient']:.0e}"
    return steps, reasons


def decode_rate(side: int, images: int) -> float:
    """Returns how many photos of 500 × 375 pixels (JPEG) one core turns into square canvases per second."""
    pixels = np.random.default_rng(0).integers(0, 256, (47, 63, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((500, 375)).save(buffer := io.BytesIO(), "JPEG", quality=90)
    started = time.perf_counter()
    for _ in range(images):
        picture = Image.open(io.BytesIO(buffer.getvalue()))
        picture.draft("RGB", (side, side))
        to_canvas(np.asarray(picture.convert("RGB")), side, 3, "uint8")
    return images / (time.perf_counter() - started)


def training_step(
    name: str, side: int, batch: int, preset: str, device: str, compiled: bool, repeats: int
) -> dict[str, Any]:
    """Times the parts of a step of SimCLR (bf16 autocast, channels-last); also images per second without decoding."""
    torch.manual_seed(0)
    encoder = build_encoder(name, image_size=side, channels=3)
    network = torch.nn.Sequential(encoder, torch.nn.Linear(encoder.feature_dim, 128)).to(device)
    network = network.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    if compiled:
        encoder.compile_backbone()
    loss, views = NTXentLoss(0.5), make_views(preset, size=side, channels=3)
    canvas = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8, device=device)
    pair = [view.contiguous(memory_format=torch.channels_last) for view in views(canvas, generator(0, "views", 0))]
    embeddings = torch.randn(2, batch, 128, device=device, dtype=torch.bfloat16).requires_grad_()

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            value = loss(*network(torch.cat(pair)).chunk(2))
        value.backward()
        network.zero_grad()

    runs = {
        "views": lambda: views(canvas, generator(0, "views", 0)),
        "network and loss": step,
        "loss": lambda: torch.autograd.grad(loss(*embeddings), embeddings),
    }
    seconds = medians(interleaved(runs, repeats, warmup=3, synchronize=waiting(device)))
    result = {"network": name, "side": side, "batch": batch, "compiled": compiled, "seconds": seconds}
    return result | {"images_per_second": batch / (seconds["views"] + seconds["network and loss"])}


def peak_mb(step: Step, inputs: Inputs) -> float:
    """Returns the peak memory of a step on the GPU above its inputs, in MiB."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(inputs)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def waiting(device: str) -> Any:
    """Returns the function that waits for the device; None for a CPU."""
    return torch.cuda.synchronize if device == "cuda" else None


def bench_gpu(device: str, quick: bool, repeats: int, minutes: float) -> dict[str, Any]:
    """Runs everything and returns one JSON object; cases for which no time was left are named."""
    started = time.monotonic()
    warnings.simplefilter("ignore")
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": " ".join(sys.argv),
    }
    result["parity"] = check_parity(device, 32 if quick else 1024)  # from which products are in half precision
    rates = {dtype: rate(getattr(torch, dtype), device, 64 if quick else 8192) for dtype in DTYPES}
    result["tflops_of_torch_mm"] = {dtype: flops / 1e12 for dtype, flops in rates.items()}
    result |= {"speed": [], "training": [], "no_time_for": []}

    def late(share: float) -> bool:
        return time.monotonic() - started > 60 * minutes * share

    def losses(cases: Sequence[Case]) -> None:
        for each, dtype in itertools.product(cases, DTYPES):
            if late(1):
                result["no_time_for"].append(f"{each.name} {dtype}")
                continue
            sized = replace(tiny(each) if quick else each, dtype=dtype)
            compiled = not (quick or late(1 / 2))  # compiling takes longest
            rivals = tuple(name for name in RIVALS if name != "compiled" or compiled)
            result["speed"].append(measure(sized, device, rates[dtype], repeats, rivals))
            print(line(result["speed"][-1]), flush=True)

    def training() -> None:
        result["decoded_per_second_and_core"] = {side: decode_rate(side, 3 if quick else 300) for side in (32, 224)}
        networks, modes = (NETWORKS[:1], (False,)) if quick else (NETWORKS, (False, True))
        for (name, side, batch, preset), compiled in itertools.product(networks, modes):
            if late(1):
                result["no_time_for"].append(f"{name} at {side} pixels{', compiled' if compiled else ''}")
                continue
            images = 4 if quick else batch
            result["training"].append(training_step(name, side, images, preset, device, compiled, repeats))
            print(training_line(result["training"][-1]), flush=True)

    cases = speed_cases()
    losses(cases[:BEFORE_TRAINING])
    training()
    losses(cases[BEFORE_TRAINING:])
    return result


def training_line(row: dict[str, Any]) -> str:
    """Returns a row of the table of training steps."""
    parts = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in row["seconds"].items())
    head = f"{row['network']}, {row['side']} pixels, {row['batch']} images{', compiled' if row['compiled'] else ''}"
    return f"{head:46}{row['images_per_second']:,.0f} images per second without decoding ({parts})"


def line(case: dict[str, Any]) -> str:
    """Returns a row of the table of losses."""
    head = f"{case['title']:46}{case['dtype']:10}"
    if case["reason"]:
        return f"{head}{case['reason']}"
    held = case["memory_mb"].get("coulomb")
    own = f"{1e3 * case['seconds']['coulomb']:9.2f} ms {case['time_over_floor']:6.2f} × floor"
    own += "" if held is None else f" {held:8,.0f} MB"
    others = [f"{name} {speedup:.2f}×" for name, speedup in case["speedup"].items()]
    own += f" by {', '.join(sorted(case['engines'])) or 'strips or one tile'}"
    return f"{head}{own}  " + ", ".join([*others, *(f"{name}: {why}" for name, why in case["skipped"].items())])


def table(result: dict[str, Any]) -> str:
    """Returns the times of all losses as one table in Markdown, milliseconds with MiB in parentheses where measured."""
    names = {name: None for row in result["speed"] for name in row["seconds"]}
    head = ["forward + backward", "type", *names, "products alone"]
    lines = [
        f"{result['device']}, torch {result['torch']}, {result['date']}",
        "",
        _cells(head),
        _cells(["---"] * len(head)),
    ]
    for row in result["speed"]:
        times = [_time(row, name) for name in names]
        floor = f"{1e3 * row['floor_seconds']:.2f}" if row["seconds"] else row["reason"]
        lines.append(_cells([row["title"], row["dtype"], *times, floor]))
    return "\n".join(lines)


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _time(row: dict[str, Any], name: str) -> str:
    if name not in row["seconds"]:
        return ""
    memory = row["memory_mb"].get(name)
    return f"{1e3 * row['seconds'][name]:.2f}" + ("" if memory is None else f" ({memory:,.0f})")


def render_parity(result: dict[str, Any]) -> str:
    """Returns how many results are right, the wrong ones, and the cases for which no time was left."""
    wrong = [row for row in result["parity"] if not row["ok"]]
    lines = [f"parity: {len(result['parity']) - len(wrong)} of {len(result['parity'])} right"]
    for row in wrong:
        found = row["error"] or f"loss {row['loss']:.1e}, gradient {row['gradient']:.1e}, allowed {row['tolerance']}"
        lines.append(f"  {row['name']}, {row['dtype']}, {row['backend']}: {found}")
    return "\n".join([*lines, *(f"no time left for {name}" for name in result["no_time_for"])])


def main(
    out: Annotated[Path | None, typer.Option(help="JSON file to write")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="tiny problems, nothing compiled")] = False,
    repeats: Annotated[int, typer.Option(help="rounds, of which medians are reported", min=1)] = 10,
    minutes: Annotated[float, typer.Option(help="start no case after this long")] = 9.0,
) -> None:
    """Check every loss on a GPU, and measure losses and training steps there. Exit code 1: a result is wrong."""
    if device not in ("cuda", "cpu"):
        raise InputError(f"device={device!r}: must be cuda or cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': there is no CUDA device; --device cpu --quick shows that the benchmark works")
    result = bench_gpu(device, quick, repeats, minutes)
    print(table(result))
    print(render_parity(result))
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if not all(row["ok"] for row in result["parity"]):
        raise typer.Exit(1)


if __name__ == "__main__":
    command(main, "--out results.json", "--device cpu --quick")
