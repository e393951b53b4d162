"""Losses for sentence-transformers, in training and alone, beside its own: ``python -m benchmarks.sentence_losses``."""

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from benchmarks.command import Json, Repeats, command, progress, show
from benchmarks.contenders import UnavailableError, loaded
from benchmarks.timing import describe_machine, resident_mib
from coulomb.ground.errors import InputError

BATCH, MINI_BATCH, DIM, SCALE = 2048, 64, 384, 20.0
GROWTH = {"ours": (8192, 16384, 32768, 65536), "theirs": (8192, 16384), "theirs, not cached": (4096, 8192, 16384)}
MODULES = {
    "ours": "coulomb.integrations.sentence_transformers",
    "theirs": "sentence_transformers.sentence_transformer.losses",
}
STAGE = (
    "import sys; from benchmarks.sentence_losses import print_stage; print_stage(*sys.argv[1:])"  # of a fresh process
)

Stage = Callable[[Tensor, Tensor], Tensor]  # the loss of embeddings, whose gradients it leaves in ``grad``


def cached_loss(name: str, model: Any, **options: Any) -> Any:
    """Returns a `CachedMultipleNegativesRankingLoss`, ours or theirs.

    Raises:
        UnavailableError: sentence-transformers is not installed.
    """
    module = loaded(MODULES[name], "sentence-transformers")
    return module.CachedMultipleNegativesRankingLoss(model, scale=SCALE, mini_batch_size=MINI_BATCH, **options)


def stage(name: str) -> Stage:
    """Returns the loss stage of a contestant in `GROWTH`."""
    nothing = torch.nn.Sequential(torch.nn.Identity())
    if name == "theirs, not cached":
        plain = loaded(MODULES["theirs"], "sentence-transformers").MultipleNegativesRankingLoss(nothing, scale=SCALE)

        def stored(query: Tensor, positive: Tensor) -> Tensor:
            value: Tensor = plain.compute_loss_from_embeddings([query, positive], None)
            value.backward()
            return value.detach()

        return stored
    loss = cached_loss(name, nothing)

    def cached(query: Tensor, positive: Tensor) -> Tensor:
        parts = [list(each.detach().split(MINI_BATCH)) for each in (query, positive)]
        parts = [[one.requires_grad_() for one in each] for each in parts]
        value: Tensor = loss.calculate_loss(parts, with_backward=True)
        query.grad, positive.grad = (torch.cat([one.grad for one in each]) for each in parts)
        return value

    return cached


def bench_steps(
    model: Path, pairs: Path, steps: int, batch: int = BATCH, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Trains two copies of a model on the same batches, one with each loss, a step of one after a step of the other.

    Args:
        model: folder of a SentenceTransformer.
        pairs: a Parquet file with the columns ``term`` and ``gloss``.
        steps: of AdamW with a learning rate of 2e-5, with the dropout of the model.
        batch: pairs of a step.
        say: called with progress messages.

    Returns:
        ``{name: [{"seconds", "processor", "stage", "loss"}]}``, a row per step; ``stage``: processor seconds of the loss.

    Raises:
        InputError: the file has too few pairs.
        UnavailableError: sentence-transformers is not installed.
    """
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(pairs, columns=["term", "gloss"])
    if len(table) < steps * batch:
        raise InputError(f"pairs={pairs}: {len(table):,} pairs, {steps} steps of {batch:,} need more")
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))[: steps * batch]
    table = table.take(order.tolist())
    library = loaded("sentence_transformers", "sentence-transformers")
    parts: dict[str, tuple[Any, Any, Any]] = {}
    for name in MODULES:
        encoder = library.SentenceTransformer(str(model), device="cpu").train()
        parts[name] = encoder, cached_loss(name, encoder), torch.optim.AdamW(encoder.parameters(), lr=2e-5)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MODULES}
    for number in range(steps):
        rows = table.slice(number * batch, batch)
        for name in list(MODULES)[:: 1 - 2 * (number % 2)]:
            say(f"step {number + 1} of {steps}, {name}")
            encoder, loss, optimizer = parts[name]
            inside = _timed(loss)
            features = [encoder.preprocess(rows[column].to_pylist()) for column in ("term", "gloss")]
            torch.manual_seed(number)
            start, used = time.perf_counter(), time.process_time()
            value = loss(features, None)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds, processor = time.perf_counter() - start, time.process_time() - used
            del loss.calculate_loss
            figures = {"seconds": seconds, "processor": processor, "stage": inside[0], "loss": float(value.detach())}
            found[name].append(figures)
    return found


def _timed(loss: Any) -> list[float]:
    """Returns a list to which the next call of ``loss`` adds the processor seconds of its loss stage."""
    calculate, taken = loss.calculate_loss, []

    def measured(*arguments: Any, **options: Any) -> Any:
        used = time.process_time()
        value = calculate(*arguments, **options)
        taken.append(time.process_time() - used)
        return value

    loss.calculate_loss = measured
    return taken


def bench_stage(
    repeats: int = 3, growth: bool = True, dim: int = DIM, say: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """Measures the loss stage alone, forward and backward to the embeddings, each time in a fresh process; ours and theirs
    take turns.

    Returns:
        ``[{"name", "n", "seconds", "processor", "peak_mib", "loss", "gradient"}]``; medians over ``repeats`` at the batch of
        the training steps, once at larger ones. ``peak_mib`` is above the embeddings.
    """
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in MODULES}
    for turn in range(repeats):
        for name in MODULES:
            say(f"loss stage, {BATCH:,} pairs, round {turn + 1} of {repeats}: {name}")
            rounds[name].append(_fresh(name, BATCH, dim))
    rows = []
    for name, each in rounds.items():
        figures = {key: statistics.median(one[key] for one in each) for key in each[0]}
        rows.append({"name": name, "n": BATCH, **figures})
    for name, sizes in GROWTH.items() if growth else ():
        for n in sizes:
            say(f"loss stage, {n:,} pairs: {name}")
            rows.append({"name": name, "n": n, **_fresh(name, n, dim)})
    return rows


def _fresh(name: str, n: int, dim: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STAGE, name, str(n), str(dim)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnavailableError((done.stderr.strip().splitlines() or ["no message"])[-1])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def print_stage(name: str, rows: str, dim: str = str(DIM)) -> None:
    """Prints the figures of a loss stage as JSON; runs in the fresh process. The first call shows the memory."""
    n, draw = int(rows), torch.Generator().manual_seed(0)
    query, noise = (torch.randn(n, int(dim), generator=draw) for _ in range(2))
    positive = (query + 2 * noise).requires_grad_()
    query.requires_grad_()
    del noise
    step = stage(name)
    small = [torch.randn(128, int(dim), generator=draw).requires_grad_() for _ in range(2)]
    step(small[0], small[1])  # imports and buffers that do not grow
    with contextlib.suppress(OSError):  # resets the recorded peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_mib("VmRSS")
    figures: dict[str, float] = {}
    for turn in range(1 if n > BATCH else 3):
        query.grad = positive.grad = None
        start, used = time.perf_counter(), time.process_time()
        loss = step(query, positive)
        figures["seconds"], figures["processor"] = time.perf_counter() - start, time.process_time() - used
        figures["peak_mib"] = figures["peak_mib"] if turn else max(0.0, resident_mib("VmHWM") - before)
    gradients: list[Any] = [query.grad, positive.grad]
    figures |= {"loss": float(loss), "gradient": float(torch.stack([grad.norm() for grad in gradients]).norm())}
    sys.stdout.write(json.dumps(figures))


def render(result: dict[str, Any]) -> str:
    """Returns the figures of `bench_steps` and `bench_stage` as text."""
    machine = result["machine"]
    lines = [
        f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, {machine['date']}; processor seconds"
    ]
    if result["steps"]:
        lines.append(f"training steps, {result['batch']:,} pairs in mini-batches of {MINI_BATCH}")
        lines.append(f"  {'step':>4}{'ours':>10}{'theirs':>10}{'stage':>10}{'theirs':>10}{'loss':>12}{'theirs':>12}")
        for number, (ours, theirs) in enumerate(zip(*(result["steps"][name] for name in MODULES), strict=True)):
            cells = "".join(f"{one[key]:>10.2f}" for key in ("processor", "stage") for one in (ours, theirs))
            lines.append(f"  {number + 1:>4}{cells}{ours['loss']:>12.6f}{theirs['loss']:>12.6f}")
    lines.append(f"loss stage alone, × {result['dim']}, forward + backward")
    lines.append(
        f"  {'':20}{'pairs':>8}{'seconds':>10}{'CPU s':>10}{'peak MiB':>10}{'KiB/pair':>10}{'loss':>12}{'gradient':>12}"
    )
    for row in result["stages"]:
        cells = f"{row['n']:>8,}{row['seconds']:>10.3f}{row['processor']:>10.3f}{row['peak_mib']:>10.0f}"
        cells += f"{1024 * row['peak_mib'] / row['n']:>10.1f}{row['loss']:>12.6f}{row['gradient']:>12.3e}"
        lines.append(f"  {row['name']:20}{cells}")
    return "\n".join(lines)


def main(
    model: Annotated[
        Path | None, typer.Option(help="folder of a SentenceTransformer; without it, the loss stage alone")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Parquet with the columns term and gloss, on which the model is trained")
    ] = None,
    steps: Annotated[int, typer.Option(help="training steps with each loss", min=1)] = 2,
    batch: Annotated[int, typer.Option(help="pairs of a training step", min=2)] = BATCH,
    growth: Annotated[bool, typer.Option(help="measure the memory of larger batches as well")] = True,
    dim: Annotated[int, typer.Option(help="dimensions of the embeddings of the loss stage", min=1)] = DIM,
    repeats: Repeats = 3,
    as_json: Json = False,
) -> None:
    """Measure CachedMultipleNegativesRankingLoss of coulomb beside that of sentence-transformers."""
    if (model is None) != (pairs is None):
        raise InputError("model and pairs: give both for training steps, or neither")
    with progress(quiet=as_json) as doing:
        try:
            stages = bench_stage(repeats, growth, dim, doing)
            trained = {} if model is None or pairs is None else bench_steps(model, pairs, steps, batch, doing)
        except UnavailableError as reason:
            raise InputError(f"sentence-transformers: {reason}") from None
    result = {"machine": describe_machine(), "dim": dim, "batch": batch, "steps": trained, "stages": stages}
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "--model MODEL --pairs glosses.parquet --steps 2", "--no-growth")
