"""`coulomb bench losses`: speed and memory of the losses beside their peers, and nothing about a wrong result."""

from collections.abc import Callable, Sequence
from typing import Any

from coulomb.bench.cases import BY_NAME, CASES
from coulomb.bench.growth import SIZES, measure_growth
from coulomb.bench.machine import describe_machine
from coulomb.bench.measure import Bench
from coulomb.bench.small import SIZES as SMALL_SIZES
from coulomb.bench.small import SMALL, measure_small
from coulomb.errors import InputError

GROWTH, SMALL_BATCHES = "growth", "small"
NAMES = (*BY_NAME, GROWTH, SMALL_BATCHES)
NOT_WHEN_QUICK = ("compiled",)  # compiling takes longer than all the rest


def bench_losses(
    cases: Sequence[str] = (),
    *,
    quick: bool = False,
    repeats: int = 5,
    memory: bool = True,
    command: str = "coulomb bench losses",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Forward and backward of each case, interleaved with its peers, medians of ``repeats`` rounds.

    Args:
        cases: names in ``NAMES``; none means all.
        quick: two cases, few small batches, nothing compiled: about a minute.
        repeats: rounds.
        memory: also peak memory, in a fresh process each.
        command: recorded in the result.
        say: called with what is being done.

    Returns:
        ``{"machine", "command", "repeats", "quick", "cases", "growth", "small", "counts"}``: see `Bench.measure`,
        `measure_growth` and `measure_small`; the latter two None if not asked for.

    Raises:
        InputError: unknown case, repeats below 1.
    """
    if repeats < 1:
        raise InputError(f"repeats must be at least 1, got {repeats}")
    unknown = sorted(set(cases) - set(NAMES))
    if unknown:
        raise InputError(f"unknown case {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    wanted = list(cases) or [
        *(c.name for c in CASES if c.quick or not quick),
        *(() if quick else (GROWTH,)),
        SMALL_BATCHES,
    ]
    bench = Bench(min(repeats, 3) if quick else repeats, memory, say=say)
    if quick:
        bench.contenders = tuple(name for name in bench.contenders if name not in NOT_WHEN_QUICK)
    results = [bench.measure(case) for case in CASES if case.name in wanted]
    growth = measure_growth(bench, SIZES[:3] if quick else SIZES) if GROWTH in wanted else None
    small = None
    if SMALL_BATCHES in wanted:
        small = measure_small(bench, SMALL, SMALL_SIZES[::2] if quick else SMALL_SIZES, 0.1 if quick else 0.5)
    found = {"cases": results, "growth": growth, "small": small}
    told = {"machine": describe_machine(), "command": command, "repeats": bench.repeats, "quick": quick}
    return told | found | {"counts": counted(found)}


def list_of_cases() -> str:
    """The names for ``cases``, with titles and targets."""
    lines = [f"{c.name:26}{c.title}" + "".join(f"; {target.text()}" for target in c.targets) for c in CASES]
    sizes = f"NT-Xent from N = {SIZES[0]:,} to {SIZES[-1]:,}, time and memory"
    small = (
        f"{len(SMALL)} ways to call losses, N = {SMALL_SIZES[0]} to {SMALL_SIZES[-1]}; ≤ 5% or 50 µs slower than dense"
    )
    return "\n".join([*lines, f"{GROWTH:26}{sizes}", f"{SMALL_BATCHES:26}{small}"])


def counted(found: dict[str, Any]) -> dict[str, int]:
    """Cases measured, wrong and skipped; targets met, missed and not measured; small batches likewise."""
    cases = found["cases"]
    targets = [target["met"] for case in cases for target in case["targets"]]
    rows = found["small"]["rows"] if found["small"] else []
    cells = [cell["met"] for row in rows for cell in row["cells"]]
    counts = {status: sum(case["status"] == status for case in cases) for status in ("measured", "wrong", "skipped")}
    counts |= {"met": targets.count(True), "missed": targets.count(False), "unknown": targets.count(None)}
    counts["contenders_skipped"] = sum(len(case["skipped"]) for case in cases)
    small = {"small_met": cells.count(True), "small_missed": cells.count(False)}
    return counts | small | {"small_skipped": sum(row["status"] == "skipped" for row in rows)}
