"""Time and memory of the losses compared with their peers, after a check of the results: ``python -m benchmarks.losses``."""

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.cases import BY_NAME, CASES, LABELS, Case, ntxent
from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.contenders import UnavailableError, bind, peak_of_fresh_process
from benchmarks.measure import Bench, compare
from benchmarks.results import render_text, save
from benchmarks.timing import describe_machine, interleaved, medians
from coulomb.cli.app import note, say
from coulomb.ground.errors import InputError
from coulomb.losses import InfoNCELoss

GROWTH_SIZES = tuple(2**power for power in range(10, 16))
GROWTH_CONTENDERS = ("coulomb", "dense")
FITTED = 3  # doublings that slopes are fitted over, the largest ones: small sizes are dominated by overhead


def measure_growth(bench: Bench, sizes: Sequence[int] = GROWTH_SIZES, dim: int = 128) -> dict[str, Any]:
    """Measures NT-Xent for growing N; returns ``{"dim", "points", "slopes"}``.

    A point is ``{"n", "status", "reason", "seconds", "memory_mb", "skipped"}``, without times if the result is wrong.
    ``slopes[name]["seconds" | "memory_mb"]`` is the exponent of N fitted to the largest sizes and the smallest of these.
    """
    points = [_point(replace(bench, contenders=("dense",)), n, dim) for n in sizes]
    return {"dim": dim, "points": points, "slopes": {name: _slopes(points, name) for name in GROWTH_CONTENDERS}}


def _point(bench: Bench, n: int, dim: int) -> dict[str, Any]:
    case = ntxent(n, dim)
    point: dict[str, Any] = {"n": n, "status": "", "reason": "", "seconds": {}, "memory_mb": {}, "skipped": {}}
    try:
        step, inputs, right = bench.prepared(case)
    except UnavailableError as reason:
        return point | {"status": "skipped", "reason": str(reason)}
    if not compare(step, inputs, right)["ok"]:
        return point | {"status": "wrong", "reason": "loss or gradient differ from the reference"}
    steps, point["skipped"] = bench.rivals(case, inputs, right)
    del right
    bench.say(f"growth: time at N = {n:,}")
    steps = {"coulomb": step} | steps
    runs = {name: bind(each, inputs) for name, each in steps.items()}
    rounds = bench.repeats * max(1, 8192 // n) if n <= 8192 else min(3, bench.repeats)
    point["seconds"] = medians(interleaved(runs, rounds))
    if bench.memory:
        point["memory_mb"] = {name: peak_of_fresh_process(name, case) for name in steps}
    return point | {"status": "measured"}


def _slopes(points: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = {}
    for what in ("seconds", "memory_mb"):
        known = [(p["n"], p[what][name]) for p in points if p[what].get(name)][-FITTED - 1 :]
        found[what] = {"exponent": slope(known), "from": known[0][0]} if len(known) > 1 else None
    return found


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Returns the exponent k of y ∝ xᵏ by least squares on logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


SMALL_SIZES = (64, 128, 256, 512, 1024)
SHARE, SECONDS = 0.10, 300e-6  # the limit: slower than dense by at most one of these


def _case(name: str, loss: str, inputs: str, dense: str, /, **options: Any) -> Case:
    return Case(name, name, loss, options, inputs, 0, 0, 128, dense, 6)


TOP = 8  # no anchor has equal 8th and 9th negatives, up to rounding
COUNTS = tuple(range(100, 0, -10))  # images per class, long-tailed
SMALL = (
    _case("NTXentLoss", "NTXentLoss", "views", "ntxent", temperature=0.5),
    _case("SupConLoss", "SupConLoss", "labeled_views", "supcon", temperature=0.5),
    _case("InfoNCELoss", "InfoNCELoss", "pairs", "infonce", temperature=0.07),
    _case("InfoNCELoss, symmetric", "InfoNCELoss", "pairs", "infonce", temperature=0.07, symmetric=True),
    _case("InfoNCELoss, queue", "InfoNCELoss", "queue", "infonce", temperature=0.07),
    _case("InfoNCELoss, ids", "InfoNCELoss", "pairs with ids", "infonce_ids", temperature=0.07, symmetric=True),
    _case(
        "InfoNCELoss, guide",
        "InfoNCELoss",
        "pairs with a guide",
        "infonce_guide",
        temperature=0.07,
        guide_margin=0.1,
        symmetric=True,
    ),
    _case("JointInfoNCELoss", "JointInfoNCELoss", "pairs", "joint_infonce", temperature=0.05),
    _case("MatryoshkaLoss", "MatryoshkaLoss", "pairs", "matryoshka", loss=InfoNCELoss(0.07), dims=(32, 64, 128)),
    _case(
        "DistillationLoss",
        "DistillationLoss",
        "pairs, one side learning",
        "distillation",
        temperature=0.2,
        teacher_temperature=0.05,
    ),
    _case("DebiasedLoss", "DebiasedLoss", "views", "debiased", temperature=0.5, tau_plus=0.1),
    _case("HardNegativeLoss", "HardNegativeLoss", "views", "hard_negative", temperature=0.5, beta=1.0, tau_plus=0.1),
    _case("SimpleContrastiveLoss", "SimpleContrastiveLoss", "pairs", "simple", weight=0.1),
    _case("HardContrastiveLoss", "HardContrastiveLoss", "pairs", "hard_contrastive", temperature=0.07, top_k=TOP),
    _case("HardSimpleLoss", "HardSimpleLoss", "pairs", "hard_simple", weight=0.1, top_k=TOP),
    _case("PaCoLoss", "PaCoLoss", "logits", "paco", class_counts=COUNTS, alpha=0.05, temperature=0.2),
    _case("NCELoss", "NCELoss", "noise", "nce", num_instances=1000, temperature=0.07, normalizer=1000.0),
    _case("SoftmaxLoss", "SoftmaxLoss", "classes", "softmax"),
    _case("BalancedSoftmaxLoss", "BalancedSoftmaxLoss", "classes", "balanced_softmax", class_counts=COUNTS),
    _case("ArcFaceLoss", "ArcFaceLoss", "classes", "arcface", num_classes=LABELS, dim=128, scale=64.0, margin=0.5),
    _case("TripletLoss, hard", "TripletLoss", "labeled", "triplet_hard", margin=0.2, mining="hard"),
    _case("AlignmentLoss", "AlignmentLoss", "pairs", "alignment", alpha=2.0),
    _case("UniformityLoss", "UniformityLoss", "rows", "uniformity", t=2.0),
    _case("SigmoidLoss", "SigmoidLoss", "pairs", "sigmoid", scale=10.0, bias=-10.0, learnable=False),
    _case("DecoupledLoss", "DecoupledLoss", "views", "decoupled", temperature=0.1),
    _case("VICRegLoss", "VICRegLoss", "pairs", "vicreg", invariance=25.0, variance=25.0, covariance=1.0),
    _case("BarlowTwinsLoss", "BarlowTwinsLoss", "pairs", "barlow_twins", weight=0.0051),
    _case("NegativeCosineLoss", "NegativeCosineLoss", "pairs, one side learning", "negative_cosine"),
)


def measure_small(
    bench: Bench, cases: Sequence[Case] = SMALL, sizes: Sequence[int] = SMALL_SIZES, budget: float = 0.5
) -> dict[str, Any]:
    """Measures losses on small batches; returns ``{"dim", "sizes", "rows": [{"name", "status", "reason", "cells"}]}``.

    A cell is ``{"n", "parity", "coulomb", "dense", "slower_us", "ratio", "met"}``; times are in seconds, and None if the
    result is wrong. ``budget``: seconds per cell.
    """
    rows = []
    for case in cases:
        bench.say(f"small batches: {case.title}")
        row: dict[str, Any] = {"name": case.title, "status": "measured", "reason": "", "cells": []}
        try:
            row["cells"] = [_cell(bench, replace(case, n=n, m=n), budget) for n in sizes]
        except UnavailableError as reason:
            row |= {"status": "skipped", "reason": str(reason)}
        wrong = sum(not cell["parity"]["ok"] for cell in row["cells"])
        if wrong:
            row |= {
                "status": "wrong",
                "reason": f"{wrong} of {len(sizes)} sizes: loss or gradient differ from the reference",
            }
        rows.append(row)
    return {"dim": 128, "sizes": list(sizes), "rows": rows}


def _cell(bench: Bench, case: Case, budget: float) -> dict[str, Any]:
    step, inputs, right = replace(bench, say=lambda text: None).prepared(case)
    cell: dict[str, Any] = {"n": case.n, "parity": compare(step, inputs, right)}
    cell |= dict.fromkeys(("coulomb", "dense", "slower_us", "ratio", "met"))
    if not cell["parity"]["ok"]:
        return cell
    steps, reasons = replace(bench, contenders=("dense",), say=lambda text: None).rivals(case, inputs, right)
    if reasons:
        raise UnavailableError(reasons["dense"])
    runs = {"coulomb": bind(step, inputs), "dense": bind(steps["dense"], inputs)}
    once = sum(medians(interleaved(runs, 3)).values())
    seconds = medians(interleaved(runs, max(3, min(400, int(budget / once)))))
    own, theirs = seconds["coulomb"], seconds["dense"]
    met = own <= theirs + max(SHARE * theirs, SECONDS)
    return cell | seconds | {"slower_us": 1e6 * (own - theirs), "ratio": own / theirs, "met": met}


GROWTH, SMALL_BATCHES = "growth", "small"
NAMES = (*BY_NAME, GROWTH, SMALL_BATCHES)
NOT_WHEN_QUICK = ("compiled",)  # compilation takes longer than everything else


def bench_losses(
    cases: Sequence[str] = (),
    *,
    quick: bool = False,
    repeats: int = 5,
    memory: bool = True,
    command: str = "python -m benchmarks.losses",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures forward and backward of each case, interleaved with other implementations: medians of ``repeats`` rounds.

    Args:
        cases: names in ``NAMES``; by default all.
        quick: two cases, fewer small batches, no compilation: about a minute.
        repeats: rounds per case.
        memory: whether to measure peak memory, in fresh processes.
        command: stored in the result.
        say: called with progress messages.

    Returns:
        ``{"machine", "command", "repeats", "quick", "cases", "growth", "small", "counts"}``: see `Bench.measure`,
        `measure_growth` and `measure_small`; ``growth`` and ``small`` are None if they were not requested.

    Raises:
        InputError: unknown case, or repeats below 1.
    """
    if repeats < 1:
        raise InputError(f"repeats={repeats}: must be at least 1")
    unknown = sorted(set(cases) - set(NAMES))
    if unknown:
        raise InputError(f"case={', '.join(unknown)}: unknown; there are {', '.join(NAMES)}")
    wanted = list(cases) or [
        *(c.name for c in CASES if c.quick or not quick),
        *(() if quick else (GROWTH,)),
        SMALL_BATCHES,
    ]
    bench = Bench(min(repeats, 3) if quick else repeats, memory, say=say)
    if quick:
        bench.contenders = tuple(name for name in bench.contenders if name not in NOT_WHEN_QUICK)
    measured = [bench.measure(case) for case in CASES if case.name in wanted]
    growth = measure_growth(bench, GROWTH_SIZES[:3] if quick else GROWTH_SIZES) if GROWTH in wanted else None
    small = None
    if SMALL_BATCHES in wanted:
        small = measure_small(bench, SMALL, SMALL_SIZES[::2] if quick else SMALL_SIZES, 0.1 if quick else 0.5)
    results = {"cases": measured, "growth": growth, "small": small}
    about = {"machine": describe_machine(), "command": command, "repeats": bench.repeats, "quick": quick}
    return about | results | {"counts": count_results(results)}


def case_listing() -> str:
    """Returns the names for ``cases`` with titles and targets."""
    lines = [f"{c.name:26}{c.title}" + "".join(f"; {target.text()}" for target in c.targets) for c in CASES]
    sizes = f"NT-Xent from N = {GROWTH_SIZES[0]:,} to {GROWTH_SIZES[-1]:,}, time and memory"
    small = f"{len(SMALL)} ways to call losses, N = {SMALL_SIZES[0]} to {SMALL_SIZES[-1]}; ≤ 10% or 300 µs slower than dense"
    return "\n".join([*lines, f"{GROWTH:26}{sizes}", f"{SMALL_BATCHES:26}{small}"])


def count_results(results: dict[str, Any]) -> dict[str, int]:
    """Counts cases and small batches by status, and targets by result."""
    cases = results["cases"]
    targets = [target["met"] for case in cases for target in case["targets"]]
    rows = results["small"]["rows"] if results["small"] else []
    cells = [cell["met"] for row in rows for cell in row["cells"]]
    counts = {status: sum(case["status"] == status for case in cases) for status in ("measured", "wrong", "skipped")}
    counts |= {"met": targets.count(True), "missed": targets.count(False), "unknown": targets.count(None)}
    counts["contenders_skipped"] = sum(len(case["skipped"]) for case in cases)
    small = {"small_met": cells.count(True), "small_missed": cells.count(False)}
    return counts | small | {"small_skipped": sum(row["status"] == "skipped" for row in rows)}


def main(
    case: Annotated[list[str] | None, typer.Option(help="only this case; may be repeated (see --list)")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a few cases, nothing compiled: about a minute")] = False,
    repeats: Repeats = 5,
    out: Annotated[Path, typer.Option(help="folder for losses.json and losses.html")] = Path("runs/bench"),
    as_json: Json = False,
    list_cases: Annotated[bool, typer.Option("--list", help="list the cases and their targets")] = False,
) -> None:
    """Measure time and memory of the losses, compared with other implementations and with matrix products alone."""
    if list_cases:
        say(case_listing())
        return
    typed = shlex.join(["python", "-m", "benchmarks.losses", *sys.argv[1:]])
    with progress(quiet=as_json) as doing:
        result = bench_losses(case or (), quick=quick, repeats=repeats, command=typed, say=doing)
    show(result, as_json, render_text)
    note(f"written: {' and '.join(map(str, save(result, out)))}")


if __name__ == "__main__":
    command(main, "--quick", "--case ntxent-8192x128 --repeats 9")
