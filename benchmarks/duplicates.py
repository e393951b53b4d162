"""All pairs of at least .95 similarity: `coulomb.metrics.pairs.similar_pairs` and imagededup on the same vectors.

    pip install imagededup
    python -m benchmarks.duplicates --rows 20000

Only imagededup's search by cosine runs, which stores all similarities; its networks, and so torchvision, are not needed.
Seconds, memory above the vectors, and the pairs that were missed or are too many against fp64, in turn.
"""

import sys
import time
from collections.abc import Callable
from typing import Annotated
from unittest.mock import MagicMock

import numpy as np
import typer

from benchmarks.command import Repeats, command
from benchmarks.curation import ABOVE, PeakMemory, planted_copies
from coulomb.ground.machine import processor
from coulomb.metrics.pairs import similar_pairs

Pairs = set[tuple[int, int]]
NETWORKS = ("imagededup.utils.models", "imagededup.utils.data_generator", "torchvision", "torchvision.transforms")


def by_coulomb(x: np.ndarray) -> Pairs:
    """Returns the pairs (i, j), i < j."""
    found: Pairs = set()
    for i, j, _ in similar_pairs(x, ABOVE):
        found |= set(zip(i.tolist(), j.tolist(), strict=True))
    return found


def by_imagededup(x: np.ndarray) -> Pairs:
    """Returns the pairs (i, j), i < j, that ``CNN.find_duplicates`` finds, row by row of its matrix."""
    absent = [name for name in NETWORKS if name not in sys.modules]
    sys.modules |= {name: MagicMock() for name in absent}
    try:
        from imagededup.handlers.search.retrieval import get_cosine_similarity  # type: ignore[import-not-found]
    finally:
        for name in absent:
            del sys.modules[name]
    found: Pairs = set()
    for i, row in enumerate(get_cosine_similarity(x.astype(np.float32), verbose=False)):
        found |= {(i, int(j)) for j in np.flatnonzero(row >= ABOVE) if j > i}
    return found


def main(
    rows: Annotated[int, typer.Option(help="vectors", min=100)] = 20_000,
    dim: Annotated[int, typer.Option(help="their dimensions", min=16)] = 256,
    repeats: Repeats = 2,
) -> None:
    """Measure the search for duplicates, compared with imagededup on the same vectors: seconds, memory, missed pairs."""
    x, wanted = planted_copies(rows, dim)
    print(f"{processor()}, {rows:,} × {dim}, {len(wanted):,} pairs")
    searches: dict[str, Callable[[np.ndarray], Pairs]] = {"coulomb": by_coulomb, "imagededup": by_imagededup}
    for _ in range(repeats):
        for name, search in searches.items():
            with PeakMemory() as memory:
                start = time.perf_counter()
                found = search(x)
                seconds = time.perf_counter() - start
            missed, more = len(wanted - found), len(found - wanted)
            print(f"{name:12}{seconds:8.2f} s{memory.added:10,.0f} MiB{missed:8} missed{more:6} too many")


if __name__ == "__main__":
    command(main, "--rows 20000")
