"""Which path a reduction takes, with the measurement behind each constant. Numerics are elsewhere.

Measured on AMD Zen 4 and Zen 5 and Intel Cascade Lake, two cores each, unless a comment says otherwise.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
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
        stored: largest number of elements of S that is stored: 4 MiB in fp32. A step of this size takes as long as its
            operations are many, and one tile needs fewest.
        tile: rows and columns of a tile; None: by the width of the vectors, see `tile_for`.
        cached: bytes per dimension of the exponentials that are cached for the backward pass, for the rows and again for
            keys of their own. The longer vectors are, the more a cached exponential saves. 48 MiB at D = 128; everything at
            8,192 × 8,192, D = 384.
        least_cached: share of all exponentials; caching fewer has no measurable effect.
        strip: elements of a strip of complete rows (fused): 16 MiB in fp32; more if the keys themselves are larger.
        strip_rows: rows of a strip; with fewer, the products lose more than fusing saves.
        compared: largest number of pairs whose ids are compared one by one; numbering the ids takes a dozen operations.
        half_rows: fewer queries or keys gain nothing by products in half precision.
        tf32: fp32 products on a GPU may be rounded to 10 bits: cosines with an error of 1e-3, and so logits of 1e-3/τ.
        engines: how many problems each `engine` reduced.
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
    ``"auto"`` never does. ``engines`` counts the problems that each reduced, with the reason where tiles replaced attention.

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


def cached_elements(problem: Any) -> int:
    """How many exponentials of a `Problem` are cached for the backward pass, where each saves 2·D flops.

    For symmetric problems and both directions, whose gradients need the sums of other rows and so cannot be fused.
    """
    (n, dim), m, policy = problem.queries_ND.shape, len(problem.keys), current()
    if not (problem.triangular or problem.both) or len(problem.powers) > 1 or problem.pairs.mask is not None:
        return 0
    elements = (1 + problem.both) * dim * policy.cached // problem.queries_ND.itemsize
    needed = n * m if problem.both else n * (n + LEAF) / 2
    return elements if elements >= policy.least_cached * needed else 0


def engine(problem: Any, agrees: Callable[[Any], bool]) -> str:
    """What reduces a `Problem` that is not stored: ``"attention"``, or ``"tiles"`` with the reason after a colon.

    Attention by name only, since its kernels have not been measured on a GPU; there they must pass the self-check ``agrees``.
    """
    if problem.backend != "attention":
        return "tiles"
    if problem.at_least_N is not None:
        return "tiles: a threshold (top_k), which equal similarities must meet again"
    if problem.coarse:
        return "tiles: similarities so large that the lse of a row is too coarse to weight them"
    return "attention" if not problem.queries_ND.is_cuda or agrees(problem) else "tiles: the self-check failed"


def fuses(problem: Any) -> bool:
    """True if value and gradient of a `Problem` are computed together in the forward pass (6u instead of 8u).

    One direction, keys that learn, no maximum needed, and strips of complete rows that are tall enough.
    """
    keys_MD, policy = problem.keys_MD, current()
    if keys_MD is None or problem.both or problem.pairs.mask is not None:
        return False
    if not (torch.is_grad_enabled() and keys_MD.requires_grad):
        return False
    room = max(policy.strip, problem.tile**2, keys_MD.numel())
    return policy.strip_rows * len(keys_MD) <= room and problem.bounded


def strip_height(columns: int, rows: int, tile: int) -> int:
    """Rows of a strip of complete rows, which has at least the elements of a tile."""
    return min(rows, max(current().strip_rows, max(current().strip, tile**2) // max(1, columns)))


HALF_EXPONENT = 30.0  # largest |s|·log2(e): τ from .05, where bfloat16 rounds s by less than .04


def halves(problem: Any) -> bool:
    """True if products of a `Problem` in half precision are faster, and as exact as those of dense PyTorch.

    Never with a threshold, which a similarity equal to it must meet again.
    """
    if problem.half is None or problem.at_least_N is not None or min(problem.pairs.shape) < current().half_rows:
        return False
    return problem.largest_exponent <= HALF_EXPONENT
