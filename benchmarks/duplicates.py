"""All pairs of at least .95 similarity: `coulomb.index.curation.similar_pairs`, and the search of imagededup on the
same vectors.

    pip install imagededup
    python benchmarks/duplicates.py [--rows 20000] [--repeats 2]

Only imagededup's search by cosine runs, which stores all similarities; its networks, and so torchvision, are not needed.
Seconds, memory above the vectors, and the pairs that were missed or are too many against fp64, in turn.
"""

import argparse
import sys
import time
from collections.abc import Callable
from unittest.mock import MagicMock

import numpy as np

from benchmarks.curation import ABOVE, PeakMemory, planted_copies
from coulomb.ground.machine import processor
from coulomb.index.curation import similar_pairs

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
        from imagededup.handlers.search.retrieval import get_cosine_similarity
    finally:
        for name in absent:
            del sys.modules[name]
    found: Pairs = set()
    for i, row in enumerate(get_cosine_similarity(x.astype(np.float32), verbose=False)):
        found |= {(i, int(j)) for j in np.flatnonzero(row >= ABOVE) if j > i}
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    x, wanted = planted_copies(given.rows, given.dim)
    print(f"{processor()}, {given.rows:,} × {given.dim}, {len(wanted):,} pairs")
    searches: dict[str, Callable[[np.ndarray], Pairs]] = {"coulomb": by_coulomb, "imagededup": by_imagededup}
    for _ in range(given.repeats):
        for name, search in searches.items():
            with PeakMemory() as memory:
                start = time.perf_counter()
                found = search(x)
                seconds = time.perf_counter() - start
            missed, more = len(wanted - found), len(found - wanted)
            print(f"{name:12}{seconds:8.2f} s{memory.added:10,.0f} MiB{missed:8} missed{more:6} too many")


if __name__ == "__main__":
    main()
