"""Filling part of a tile with −∞ on a CPU: by a boolean mask, and by arithmetic as the losses do.

    python benchmarks/masks.py [--repeats 30]

First the operation alone, then forward and backward of a loss over ids and of one with the k hardest negatives, in which
only this operation is exchanged. Medians of interleaved rounds, in milliseconds.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

import torch
from torch import Tensor

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


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--sizes", type=int, nargs="*", default=[256, 512, 768, 1024], help="sides of a tile")
    parser.add_argument("--batches", type=int, nargs="*", default=[1024, 4096, 8192], help="rows of a loss")
    given = parser.parse_args()
    torch.manual_seed(0)
    print(f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}")

    def compare(name: str, masked: Callable[[], object], arithmetic: Callable[[], object]) -> None:
        seconds = medians(interleaved({"masked": masked, "arithmetic": arithmetic}, given.repeats))
        before, after = 1e3 * seconds["masked"], 1e3 * seconds["arithmetic"]
        print(f"{name:32} {before:9.3f} -> {after:9.3f} ms  {after / before:.2f}")

    for n in given.sizes:
        tile, ids = torch.randn(n, n), torch.randint(0, 10, (n,))
        codes = ids.float()
        compare(
            f"tile {n} x {n}, ids",
            lambda tile=tile, ids=ids: masked_(tile, torch.eq, ids[:, None], ids),
            lambda tile=tile, codes=codes: exclude_(tile, torch.eq, codes[:, None], codes),
        )
    for n in given.batches:
        rows = torch.nn.functional.normalize(torch.randn(n, 128), dim=1).requires_grad_()
        keys, ids, hard = torch.randn(n, 128, requires_grad=True), torch.randint(0, 10, (n,)), HardSimpleLoss(top_k=64)
        steps = {
            "lse over negatives by ids": lambda rows=rows, ids=ids: (
                Similarity(rows, scale=10.0, query_ids=ids, unit=True).lse("negatives").sum().backward()
            ),
            "HardSimpleLoss, top 64": lambda rows=rows, keys=keys, hard=hard: hard(rows, keys).backward(),
        }
        for name, step in steps.items():
            compare(f"{name}, {n}", exchanged(step, masked_), exchanged(step, exclude_))


if __name__ == "__main__":
    main()
