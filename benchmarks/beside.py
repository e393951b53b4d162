"""The losses beside N busy processes, each measurement in a fresh process: ``python -m benchmarks.beside N``."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import typer

from benchmarks.cases import BY_NAME, make_inputs
from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.contenders import CONTENDERS, bind
from benchmarks.timing import describe_machine
from coulomb.ground.errors import InputError

CASES = ("ntxent-8192x128", "ntxent-8192x512")
# Name, label, threads of torch (None: as many as here).
CONTESTANTS = (
    ("coulomb", "coulomb", None),
    ("coulomb", "coulomb, one thread", 1),
    ("dense", "dense PyTorch", None),
    ("products", "two matrix products", None),
)


def bench_beside(
    beside: Sequence[int], cases: Sequence[str] = (), repeats: int = 5, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Measures forward and backward next to busy processes; returns ``{"machine", "repeats", "rows"}``.

    A row is ``{"case", "beside", "seconds"}``, with the median seconds by label. Two matrix products are Q·Kᵀ, stored, and its
    product with K: the least that a dense forward pass and one gradient need.

    Args:
        beside: numbers of busy processes; 0 is a quiet machine.
        cases: names in `benchmarks.cases`; by default NT-Xent 8,192 × 128 and × 512.
        repeats: measurements per process, after one that is not counted.
        say: called with progress messages.

    Raises:
        InputError: unknown case or a negative number.
    """
    if unknown := sorted(set(cases) - set(BY_NAME)):
        raise InputError(f"case={', '.join(unknown)}: unknown; there are {', '.join(BY_NAME)}")
    if beside and min(beside) < 0:
        raise InputError(f"beside={min(beside)}: must be a number of processes, 0 or more")
    rows = []
    for name in cases or CASES:
        for count in beside:
            seconds = {}
            with busy(count):
                for contestant, label, threads in CONTESTANTS:
                    say(f"{BY_NAME[name].title} beside {count} busy processes: {label}")
                    seconds[label] = _fresh(contestant, name, threads or torch.get_num_threads(), repeats)
            rows.append({"case": name, "beside": count, "seconds": seconds})
    return {"machine": describe_machine(), "repeats": repeats, "rows": rows}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Context in which ``count`` processes compute without a pause."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _fresh(contestant: str, case: str, threads: int, repeats: int) -> float:
    code = "import sys; from benchmarks.beside import print_seconds; print_seconds(*sys.argv[1:])"
    fresh = [sys.executable, "-W", "ignore", "-c", code, contestant, case, str(repeats)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(fresh, capture_output=True, text=True, check=True, env=environment)
    return float(json.loads(done.stdout.splitlines()[-1]))


def print_seconds(contestant: str, name: str, repeats: str) -> None:
    """Prints the median seconds of a contestant; runs in the fresh process."""
    case = BY_NAME[name]
    inputs = make_inputs(case)
    if contestant == "products":
        first = torch.cat(inputs.arguments[:2]) if case.inputs == "views" else inputs.arguments[0]
        keys = first if case.inputs == "views" else inputs.arguments[-1]
        step: Callable[[], object] = lambda: torch.mm(torch.mm(first, keys.T), keys)  # noqa: E731
    else:
        step = bind(CONTENDERS[contestant].make(case), inputs)
    step()
    taken = []
    for _ in range(int(repeats)):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    sys.stdout.write(json.dumps(statistics.median(taken)))


def render(result: dict[str, Any]) -> str:
    """Returns the table for the terminal."""
    machine, labels = result["machine"], [label for _, label, _ in CONTESTANTS]
    lines = [
        f"forward + backward, milliseconds, medians of {result['repeats']} in a fresh process each; {machine['processor']} "
        f"({machine['instructions']}), {machine['threads']} threads, torch {machine['torch']}, {machine['date']}",
        f"{'case':24}{'busy':>5}" + "".join(f"{label:>21}" for label in labels) + f"{'× dense':>9}{'÷ products':>12}",
    ]
    for row in result["rows"]:
        own, seconds = row["seconds"]["coulomb"], row["seconds"]
        cells = "".join(f"{1000 * seconds[label]:>21,.0f}" for label in labels)
        ratios = f"{seconds['dense PyTorch'] / own:>9.1f}{own / seconds['two matrix products']:>12.2f}"
        lines.append(f"{row['case']:24}{row['beside']:>5}{cells}{ratios}")
    return "\n".join(lines)


def main(
    beside: Annotated[list[int], typer.Argument(help="numbers of busy processes; 0 is a quiet machine")],
    case: Annotated[list[str] | None, typer.Option(help="only this case; may be repeated")] = None,
    repeats: Repeats = 5,
    as_json: Json = False,
) -> None:
    """Measure the losses beside busy processes, compared with plain PyTorch and with two matrix products."""
    with progress(quiet=as_json) as doing:
        result = bench_beside(beside, case or (), repeats, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "0 2 4", "2 --case ntxent-8192x128")
