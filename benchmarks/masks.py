"""Filling part of a tile with −∞ on a CPU: by a boolean mask, and by arithmetic as the losses do.

    python -m benchmarks.masks

First the operation alone, then forward and backward of a loss over ids and of one with the k hardest negatives, in which
only this operation is exchanged. Medians of interleaved rounds, in milliseconds.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Annotated
from unittest.mock import patch

import torch
import typer
from torch import Tensor

from benchmarks.command import Repeats, command
from benchmarks.timing import interleaved, medians
from coulomb.ground.machine import exclude_, processor
from coulomb.losses import HardSimpleLoss
from coulomb.similarity import Similarity, pairs, stored, tiles


def masked_(tile: Tensor, which: Callable[..., Tensor], first: Tensor, second: Tensor) -> Tensor:
    """`coulomb.ground.machine.exclude_` by a boolean mask."""
    return tile.masked_fill_(which(first, second), -torch.inf)


def exchanged(step: Callable[[], object], fill: Callable[..., Tensor]) -> Callable[[], object]:
    """Returns ``step`` with ``fill`` in the place of `exclude_`."""

    def run() -> None:
        with ExitStack() as stack:
            for module in (pairs, stored, tiles):
                stack.enter_context(patch.object(module, "exclude_", fill))
            step()

    return run


def steps(n: int) -> dict[str, Callable[[], object]]:
    """Returns forward and backward of two losses on ``n`` rows."""
    rows = torch.nn.functional.normalize(torch.randn(n, 128), dim=1).requires_grad_()
    keys, ids, hard = torch.randn(n, 128, requires_grad=True), torch.randint(0, 10, (n,)), HardSimpleLoss(top_k=64)

    def by_ids() -> None:
        Similarity(rows, scale=10.0, query_ids=ids, unit=True).lse("negatives").sum().backward()

    return {"lse over negatives by ids": by_ids, "HardSimpleLoss, top 64": lambda: hard(rows, keys).backward()}


SIZES, BATCHES = (256, 512, 768, 1024), (1024, 4096, 8192)


def main(
    size: Annotated[list[int] | None, typer.Option(help=f"side of a tile; may be repeated; default: {SIZES}")] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help=f"rows of a loss; may be repeated; default: {BATCHES}")
    ] = None,
    repeats: Repeats = 30,
) -> None:
    """Measure the exclusion of similarities from a tile, by a boolean mask and by arithmetic: milliseconds."""
    torch.manual_seed(0)
    print(f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}")

    def compare(name: str, masked: Callable[[], object], arithmetic: Callable[[], object]) -> None:
        seconds = medians(interleaved({"masked": masked, "arithmetic": arithmetic}, repeats))
        before, after = 1e3 * seconds["masked"], 1e3 * seconds["arithmetic"]
        print(f"{name:32} {before:9.3f} -> {after:9.3f} ms  {after / before:.2f}")

    for n in size or SIZES:
        tile, ids = torch.randn(n, n), torch.randint(0, 10, (n,))
        codes = ids.float()
        masked = partial(masked_, tile, torch.eq, ids[:, None], ids)
        compare(f"tile {n} x {n}, ids", masked, partial(exclude_, tile, torch.eq, codes[:, None], codes))
    for n in batch or BATCHES:
        for name, step in steps(n).items():
            compare(f"{name}, {n}", exchanged(step, masked_), exchanged(step, exclude_))


if __name__ == "__main__":
    command(main, "", "--size 512 --batch 4096")
