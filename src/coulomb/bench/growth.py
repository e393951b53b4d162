"""How time and memory grow with the number of rows: NT-Xent, doubling N until it no longer fits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coulomb.bench.cases import ntxent
from coulomb.bench.contenders import UnavailableError, run_of
from coulomb.bench.measure import Bench
from coulomb.bench.parity import compare
from coulomb.bench.peak import peak_of_fresh_process
from coulomb.bench.timing import interleaved, medians

SIZES = tuple(2**power for power in range(10, 16))
NAMES = ("coulomb", "dense")
FITTED = 3  # doublings at the large end that slopes are fitted over: below, what every call costs shows


def measure_growth(bench: Bench, sizes: Sequence[int] = SIZES, dim: int = 128) -> dict[str, Any]:
    """``{"dim", "points": [{"n", "status", "reason", "seconds", "memory_mb", "skipped"}], "slopes"}``.

    ``slopes[name]["seconds" | "memory_mb"]``: exponent of N fitted to the largest sizes, and from which N on; 2 is
    quadratic, 1 linear. A size whose result is wrong has no figures.
    """
    points = [_point(replace(bench, contenders=("dense",)), n, dim) for n in sizes]
    return {"dim": dim, "points": points, "slopes": {name: _slopes(points, name) for name in NAMES}}


def _point(bench: Bench, n: int, dim: int) -> dict[str, Any]:
    case = ntxent(n, dim)
    point: dict[str, Any] = {"n": n, "status": "", "reason": "", "seconds": {}, "memory_mb": {}, "skipped": {}}
    try:
        step, inputs, right = bench.prepared(case)
    except UnavailableError as reason:
        return point | {"status": "skipped", "reason": str(reason)}
    if not compare(step, inputs, right)["ok"]:
        return point | {"status": "wrong", "reason": "its loss or gradient is not the reference's"}
    steps, point["skipped"] = bench.rivals(case, inputs, right)
    del right
    bench.say(f"growth: time at N = {n:,}")
    steps = {"coulomb": step} | steps
    runs = {name: run_of(each, inputs) for name, each in steps.items()}
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
    """The exponent k of y ∝ xᵏ, by least squares on logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)
