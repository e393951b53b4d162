"""The constants of the engine, with the measurement behind each; `coulomb.similarity.plan` decides by them.

Measured on AMD Zen 4 and Zen 5 and Intel Cascade Lake, two cores each, unless a comment says otherwise.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from coulomb.ground import machine

BACKENDS = ("auto", "dense", "streaming", "attention")


@dataclass(frozen=True)
class Policy:
    """The choices that a caller or a test may change for a block of code, see `use_backend` and `override`.

    Attributes:
        backend: what ``backend="auto"`` means.
        stored: largest number of elements of S that is stored: 4 MiB in fp32. Problems of this size are bound by the number
            of operator calls, so they use a single tile.
        tile: rows and columns of a tile; None: by the width of the vectors, see `tile_for`.
        cached: bytes per dimension of the exponentials that are cached for the backward pass, for the rows and again for
            the keys if they are not the queries. The longer vectors are, the more a cached exponential saves. 48 MiB at
            D = 128; everything at 8,192 × 8,192, D = 384.
        least_cached: share of all exponentials; caching fewer has no measurable effect.
        strip: elements of a strip of complete rows (fused): 16 MiB in fp32; more if the keys themselves are larger.
        strip_rows: rows of a strip; with fewer, the products lose more than fusing saves.
        compared: largest number of pairs whose ids are compared one by one; numbering the ids takes a dozen operations.
        half_rows: fewer queries or keys gain nothing by products in half precision.
        saved: least mean width of the shorter prefixes that are reduced together with the longest (`prefixes`). Prefixes of
            16, 32, 64, 128 of 256 take 10 to 20% less time together, those of 8, 16, 32, 64 of 128 as long.
        tf32: fp32 products on a GPU may be rounded to 10 bits: cosines with an error of 1e-3, and so logits of 1e-3/τ.
        engines: number of plans for each engine, see `coulomb.similarity.plan.decide`.
    """

    backend: str = "auto"
    stored: int = 2**20
    tile: int | None = None
    cached: int = 3 * 2**17
    least_cached: float = 1 / 4
    strip: int = 2**22
    strip_rows: int = 128
    compared: int = 2**16
    half_rows: int = 1024
    saved: int = 48
    tf32: bool = False
    engines: Counter[str] = field(default_factory=Counter, compare=False)


_policies = [Policy()]  # the last one applies; a plain list, which torch.compile can trace


def current() -> Policy:
    """The policy that applies."""
    return _policies[-1]


@contextmanager
def override(**changes: object) -> Iterator[None]:
    """Within this block, the policy with these attributes changed."""
    _policies.append(replace(current(), **changes))  # type: ignore[arg-type]
    try:
        yield
    finally:
        _policies.pop()


class use_backend:
    """From here on, or within a ``with`` block, every `Similarity` with ``backend="auto"`` (all losses) uses this backend.

    ``"dense"`` is plain PyTorch on the stored matrix, for second derivatives and `torch.func` on problems of any size.
    ``"streaming"`` computes tiles, ``"attention"`` passes of an attention kernel (`coulomb.similarity.attention`), which
    ``"auto"`` never does. ``engines`` counts the plans for each engine, with the reason where tiles replaced attention.

    >>> from coulomb.similarity import Similarity
    >>> with use_backend("dense"):
    ...     Similarity(torch.eye(2)).lse("others")
    tensor([0., 0.])
    """

    def __init__(self, backend: str) -> None:
        self.before, self.engines = current(), Counter[str]()
        _policies[-1] = replace(self.before, backend=checked_backend(backend), engines=self.engines)

    def __enter__(self) -> "use_backend":
        return self

    def __exit__(self, *error: object) -> None:
        _policies[-1] = self.before


def checked_backend(backend: str) -> str:
    """Returns ``backend``; raises ValueError for an unknown one."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be {', '.join(map(repr, BACKENDS))}, got {backend!r}")
    return backend


WORKING_SET = 3 * 2**18  # elements of a tile and its operands, 3 MiB in fp32: the caches hold them from product to sum
LEAF = 384  # rows of the blocks on the diagonal, where the triangle computes elements twice


def tile_for(dim: int, device: torch.device | None = None) -> int:
    """Rows and columns of a tile: T(T + 2·dim) within the working set, a multiple of 64. 768 at D = 128, 512 at D = 512.

    On a GPU by its free memory (`coulomb.ground.machine.gpu_tile`).
    """
    if device is not None and device.type == "cuda":
        return machine.gpu_tile(machine.free_gpu_bytes(device))
    side = math.isqrt(dim * dim + WORKING_SET) - dim
    return max(128, side // 64 * 64)


def strip_height(columns: int, rows: int, tile: int) -> int:
    """Rows of a strip of complete rows, which has at least the elements of a tile."""
    return min(rows, max(current().strip_rows, max(current().strip, tile**2) // max(1, columns)))


HALF_EXPONENT = 30.0  # largest |s|·log2(e): τ from .05, where bfloat16 rounds s by less than .04


def halves(problem: Any) -> bool:
    """True if products of a `Problem` in half precision are faster, and as exact as in dense PyTorch.

    Never with a threshold, which a similarity equal to it must meet again.
    """
    if problem.half is None or problem.at_least_N is not None or min(problem.pairs.shape) < current().half_rows:
        return False
    return problem.largest_exponent <= HALF_EXPONENT
