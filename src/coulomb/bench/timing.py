"""Taking turns: every contender is measured in every round, so that a busy machine is busy for all."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping

Run = Callable[[], object]


def interleaved(
    runs: Mapping[str, Run], repeats: int, *, warmup: int = 1, synchronize: Callable[[], object] | None = None
) -> dict[str, list[float]]:
    """Seconds of each run in each of ``repeats`` rounds, in turns, after ``warmup`` rounds that do not count.

    The order turns by one from round to round, so that nobody always follows the same neighbour. Python's garbage
    collector waits meanwhile. ``synchronize`` waits for a device before each look at the clock.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for round_number in range(warmup + repeats):
            for name, run in order:
                if synchronize is not None:
                    synchronize()
                start = time.perf_counter()
                result = run()
                if synchronize is not None:
                    synchronize()
                elapsed = time.perf_counter() - start
                del result
                if round_number >= warmup:
                    seconds[name].append(elapsed)
            order = order[1:] + order[:1]
    finally:
        if collecting:
            gc.enable()
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The median of each."""
    return {name: statistics.median(taken) for name, taken in seconds.items()}
