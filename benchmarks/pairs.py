"""The loss stage of pairs, both directions, beside open_clip's and sentence-transformers': ``python -m benchmarks.pairs``."""

import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.beside import busy
from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.contenders import UnavailableError, loaded
from benchmarks.timing import describe_machine, resident_mib
from coulomb.ground.errors import InputError
from coulomb.losses import InfoNCELoss, LearnableTemperature

ROWS, DIM, TEMPERATURE = 8192, 512, 0.07
GROWTH = (4096, 8192, 16384, 32768)
SAME = 1e-4  # relative difference of losses and of gradients' norms, beyond which a contestant computes something else
STEP = "import sys; from benchmarks.pairs import print_step; print_step(*sys.argv[1:])"  # of a fresh process

Step = Callable[[Tensor, Tensor], Tensor]  # leaves the gradients of both embeddings in ``grad`` and returns the loss


def coulomb_step(ids: Tensor | None = None) -> Step:
    """Returns a step of `InfoNCELoss` with a learned temperature."""
    loss = InfoNCELoss(LearnableTemperature(TEMPERATURE), symmetric=True)

    def step(query: Tensor, positive: Tensor) -> Tensor:
        value = loss(query, positive, ids=ids)
        assert isinstance(value, Tensor)
        value.backward()
        return value

    return step


def coulomb_ids_step() -> Step:
    """Returns the same step with two ids per pair: five captions per picture, and a fifth of the captions repeated."""
    draw = torch.Generator().manual_seed(1)
    captions = torch.arange(ROWS)
    captions[torch.randperm(ROWS, generator=draw)[: ROWS // 5]] = torch.randint(ROWS, (ROWS // 5,), generator=draw)
    return coulomb_step(torch.stack([torch.arange(ROWS) // 5, captions], 1))


def open_clip_step() -> Step:
    """Returns a step of open_clip's ClipLoss on normalized embeddings, with a learned scale, as in its training.

    Its file is loaded by itself, since the package needs torchvision.
    """
    package = importlib.util.find_spec("open_clip")
    if package is None or package.origin is None:
        raise UnavailableError("not installed (pip install --no-deps open_clip_torch)")
    spec = importlib.util.spec_from_file_location("open_clip_loss", Path(package.origin).with_name("loss.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loss, log_scale = module.ClipLoss(), torch.nn.Parameter(-torch.tensor(TEMPERATURE).log())

    def step(query: Tensor, positive: Tensor) -> Tensor:
        value: Tensor = loss(normalize(query, dim=-1), normalize(positive, dim=-1), log_scale.exp())
        value.backward()
        return value

    return step


def sentence_transformers_step(mini_batch_size: int = 32) -> Step:
    """Returns a step of the loss stage of sentence-transformers' cached loss; its default mini-batch is 32."""
    name = "sentence_transformers.sentence_transformer.losses.cached_multiple_negatives_ranking"
    made = loaded(name, "sentence-transformers").CachedMultipleNegativesRankingLoss(
        torch.nn.Sequential(torch.nn.Identity()),
        scale=1 / TEMPERATURE,
        mini_batch_size=mini_batch_size,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )

    def step(query: Tensor, positive: Tensor) -> Tensor:
        value: Tensor = made.calculate_loss([[query], [positive]], with_backward=True)
        return value

    return step


def products_step() -> Step:
    """Returns the three products that any method needs, by `torch.mm` and stored: Q·Kᵀ, and its products with K and with Q."""

    def step(query: Tensor, positive: Tensor) -> Tensor:
        with torch.no_grad():
            scores = query @ positive.T
            query.grad, positive.grad = scores @ positive, scores.T @ query
        return torch.tensor(torch.nan)

    return step


CONTESTANTS: dict[str, tuple[str, Callable[[], Step]]] = {
    "coulomb": ("coulomb", coulomb_step),
    "ids": ("coulomb, two ids per pair", coulomb_ids_step),
    "open_clip": ("open_clip ClipLoss", open_clip_step),
    "sentence-transformers, 1024": (
        "sentence-transformers, cached, 1,024 rows",
        lambda: sentence_transformers_step(1024),
    ),
    "sentence-transformers": ("sentence-transformers, cached, 32 rows", sentence_transformers_step),
    "products": ("three products, stored", products_step),
}
DIFFERENT = ("ids", "products")  # which compute another number
ONCE = ("sentence-transformers",)  # takes minutes: one step of one round, which is also its first


def bench_pairs(
    beside: Sequence[int] = (0,),
    contestants: Sequence[str] = (),
    growth: Sequence[int] = GROWTH,
    repeats: int = 3,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measures forward and backward, each figure in fresh processes; contestants take turns.

    Args:
        beside: numbers of busy processes; 0 is a quiet machine.
        contestants: names in `CONTESTANTS`, in addition to coulomb; by default all.
        growth: numbers of pairs for the peak memory of coulomb.
        repeats: rounds; a figure is the median over rounds of the second step of a process, but see `ONCE`.
        say: called with progress messages.

    Returns:
        ``{"machine", "repeats", "rows": [{"beside", "contestants": {name: {"seconds", "processor", "peak_mib", "loss",
        "gradient"}},
        "skipped", "ratios", "same"}], "growth": [{"n", "seconds", "peak_mib"}]}``. ``ratios`` are by coulomb's seconds of
        the same round, the median; ``same``: contestants whose loss and gradient equal coulomb's.

    Raises:
        InputError: unknown contestant, or a negative number of processes.
    """
    if unknown := sorted(set(contestants) - set(CONTESTANTS)):
        raise InputError(f"contestant={', '.join(unknown)}: unknown; there are {', '.join(CONTESTANTS)}")
    if beside and min(beside) < 0:
        raise InputError(f"beside={min(beside)}: must be a number of processes, 0 or more")
    chosen = [name for name in CONTESTANTS if name in ("coulomb", *(contestants or CONTESTANTS))]
    rows = [_row(count, chosen, repeats, say) for count in beside]
    points = []
    for n in growth:
        say(f"memory of {n:,} pairs")
        seconds, _, peak, *_ = fresh("coulomb", n)
        points.append({"n": n, "seconds": seconds, "peak_mib": peak})
    return {"machine": describe_machine(), "repeats": repeats, "rows": rows, "growth": points}


def _row(count: int, chosen: Sequence[str], repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    runs: dict[str, list[tuple[float, float, float, float, float]]] = {name: [] for name in chosen}
    skipped: dict[str, str] = {}
    with busy(count):
        for turn in range(repeats):
            for name in chosen:
                label = CONTESTANTS[name][0]
                if name in skipped or (turn and name in ONCE):
                    continue
                say(f"beside {count} busy processes, round {turn + 1} of {repeats}: {label}")
                try:
                    runs[name].append(fresh(name, ROWS))
                except UnavailableError as reason:
                    skipped[name] = str(reason)
    measured = {name: each for name, each in runs.items() if each}
    figures = "seconds", "processor", "peak_mib", "loss", "gradient"
    medians = {
        name: dict(zip(figures, map(statistics.median, zip(*each, strict=True)), strict=True))
        for name, each in measured.items()
    }
    own = measured["coulomb"]
    ratios = {
        name: statistics.median(theirs[0] / mine[0] for theirs, mine in zip(each, own, strict=False))
        for name, each in measured.items()
    }
    same = [
        name
        for name, figure in medians.items()
        if all(abs(figure[one] / medians["coulomb"][one] - 1) < SAME for one in ("loss", "gradient"))
    ]
    return {"beside": count, "contestants": medians, "skipped": skipped, "ratios": ratios, "same": same}


def fresh(contestant: str, rows: int) -> tuple[float, float, float, float, float]:
    """Returns (seconds, processor seconds, peak MiB above the inputs, loss, norm of the gradients) from a fresh process.

    Raises:
        UnavailableError: the other library is not installed.
    """
    arguments = [sys.executable, "-W", "ignore", "-c", STEP, contestant, str(rows)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise UnavailableError((done.stderr.strip().splitlines() or ["no message"])[-1])
    seconds, processor, peak, loss, gradient = json.loads(done.stdout.splitlines()[-1])
    return seconds, processor, peak, loss, gradient


def print_step(contestant: str, rows: str) -> None:
    """Prints what `fresh` returns; runs in the fresh process. The first step shows the memory, the second the time."""
    draw = torch.Generator().manual_seed(0)
    query, noise = (torch.randn(int(rows), DIM, generator=draw) for _ in range(2))
    positive = (query + noise).requires_grad_()
    query.requires_grad_()
    step = CONTESTANTS[contestant][1]()
    with contextlib.suppress(OSError):  # resets the recorded peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_mib("VmRSS")
    peak = 0.0
    for turn in range(1 if contestant in ONCE else 2):
        query.grad = positive.grad = None
        start, used = time.perf_counter(), time.process_time()
        loss = step(query, positive)
        seconds, processor = time.perf_counter() - start, time.process_time() - used
        peak = peak if turn else max(0.0, resident_mib("VmHWM") - before)
    gradients: list[Any] = [query.grad, positive.grad]
    norm = torch.stack([grad.norm() for grad in gradients]).norm()
    sys.stdout.write(json.dumps([seconds, processor, peak, float(loss.detach()), float(norm)]))


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_pairs` as text."""
    machine = result["machine"]
    lines = [
        f"{ROWS:,} pairs × {DIM}, fp32, both directions, forward + backward; medians of {result['repeats']} rounds of fresh "
        f"processes; {machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, {machine['date']}"
    ]
    for row in result["rows"]:
        lines.append(
            f"beside {row['beside']} busy processes{'':18}{'ms':>8}{'× coulomb':>11}{'CPU ms':>9}{'peak MiB':>10}  same result"
        )
        for name, (label, _) in CONTESTANTS.items():
            if name not in row["contestants"] and name not in row["skipped"]:
                continue
            if name in row["skipped"]:
                lines.append(f"  {label:42}{row['skipped'][name]}")
                continue
            figure = row["contestants"][name]
            same = "–" if name in DIFFERENT else "yes" if name in row["same"] else "NO"
            cells = f"{1000 * figure['seconds']:>8,.0f}{row['ratios'][name]:>11.2f}"
            cells += f"{1000 * figure['processor']:>9,.0f}{figure['peak_mib']:>10,.0f}"
            lines.append(f"  {label:42}{cells}  {same}")
    if result["growth"]:
        points = result["growth"]
        lines.append("coulomb, peak memory above the embeddings, each in a fresh process")
        for point in points:
            each = 1024 * point["peak_mib"] / point["n"]
            cells = f"{1000 * point['seconds']:>10,.0f} ms{point['peak_mib']:>8,.0f} MiB{each:>8.1f} KiB per pair"
            lines.append(f"  {point['n']:>7,} pairs{cells}")
    return "\n".join(lines)


def main(
    beside: Annotated[
        list[int] | None, typer.Option(help="busy processes beside; may be repeated; 0 by default")
    ] = None,
    contestant: Annotated[list[str] | None, typer.Option(help="only this one beside coulomb; may be repeated")] = None,
    growth: Annotated[bool, typer.Option(help="measure the memory of growing batches as well")] = True,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Measure the contrastive loss of pairs in both directions, compared with open_clip and sentence-transformers."""
    with progress(quiet=as_json) as doing:
        result = bench_pairs(beside or (0,), contestant or (), GROWTH if growth else (), repeats, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "", "--beside 0 --beside 2 --contestant open_clip --no-growth")
