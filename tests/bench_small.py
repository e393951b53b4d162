"""A benchmark of tiny problems."""

from dataclasses import replace

from benchmarks.cases import BY_NAME
from benchmarks.losses import SMALL, count_results, measure_growth, measure_small
from benchmarks.measure import Bench
from benchmarks.timing import describe_machine

SMALL_CASES = tuple(
    replace(BY_NAME[name], name=f"small-{name}", n=n, m=m, dim=8)
    for name, n, m in (("ntxent-8192x128", 64, 64), ("queue-256x65536x128", 16, 128), ("infonce-4096x512", 48, 48))
)


def small_result(contenders=("dense",), memory=False):
    bench = Bench(repeats=1, memory=memory, contenders=contenders)
    found = {
        "cases": [bench.measure(case) for case in SMALL_CASES],
        "growth": measure_growth(bench, (32, 64, 128), dim=8),
        "small": measure_small(bench, SMALL[:3], (16, 32), budget=0.0),
    }
    told = {"machine": describe_machine(), "command": "python -m benchmarks.losses", "repeats": 1, "quick": False}
    return told | found | {"counts": count_results(found)}
