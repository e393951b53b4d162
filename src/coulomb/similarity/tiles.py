"""`Problem`, what a reduction works on, and `Tiles`, the blocks of its matrix S that are computed one at a time."""

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from coulomb.checked import capturing
from coulomb.machine import exclude_
from coulomb.similarity import policy, products
from coulomb.similarity.pairs import Pairs

LOG2E = 1 / math.log(2)
# Sums of up to 2^40 terms of 2^±80 are normal fp32 numbers, and so are the weights g·2^−lse of the backward pass.
SAFE_EXPONENT = {torch.float32: 80.0, torch.float64: 600.0}
COARSE = 2**-8  # error of t to which the lse of a row in fp32 or fp64 may be rounded
UNIT = 1 + 1e-3  # upper bound of the length of a normalised row
_NOTHING = torch.empty(0)


@dataclass(eq=False)
class Problem:
    """A reduction of each row of s = scale·Q·Kᵀ + bias over the pairs that count.

    Attributes:
        queries_ND, keys_MD: operands; None for the keys if they are the queries.
        scale, bias_M: a number or a 0-dim tensor; a bias per column, or None.
        pairs: the pairs that count.
        reduction: ``"lse"``, log Σ_j exp(p·s_ij); ``"sum"``, Σ_j s_ij; ``"softplus"``, Σ_j log(1 + exp s_ij).
        powers: the p, ascending. Several share the product of each tile.
        both: reduce the columns as well, from the same tiles (lse, one power).
        at_least_N: pairs with s below this value of their row do not count; or None.
        top_k: only the k largest of a row count, and what equals the last of them to rounding; or None. For stored S only.
        unit: rows of both operands have at most unit length, so that their norms need not be computed.
        tile: rows and columns of a tile.
        exponent: an upper bound of |s|·log2(e) if known, or None.
        half: dtype of the operands of the tiles' products, or None. Everything else is in full precision.
        backend: who reduces it if it is not stored, see `policy.engine`.
    """

    queries_ND: Tensor
    keys_MD: Tensor | None
    scale: float | Tensor
    bias_M: Tensor | None
    pairs: Pairs
    reduction: str = "lse"
    powers: tuple[float, ...] = (1.0,)
    both: bool = False
    at_least_N: Tensor | None = None
    top_k: int | None = None
    unit: bool = False
    tile: int = 768
    exponent: float | None = None
    half: torch.dtype | None = None
    backend: str = "auto"

    @property
    def operands(self) -> tuple[Tensor, Tensor | None, float | Tensor, Tensor | None]:
        """What may carry gradients: queries, keys, scale, bias."""
        return self.queries_ND, self.keys_MD, self.scale, self.bias_M

    def with_operands(
        self, queries_ND: Tensor, keys_MD: Tensor | None, scale: float | Tensor | None, bias_M: Tensor | None
    ) -> "Problem":
        """The problem with these operands; None for ``scale`` keeps the number."""
        out = copy(self)
        out.queries_ND, out.keys_MD, out.bias_M = queries_ND, keys_MD, bias_M
        out.scale = self.scale if scale is None else scale
        return out

    def without_operands(self) -> "Problem":
        """Everything else, to be kept until the backward pass."""
        return self.with_operands(_NOTHING, None, 1.0 if isinstance(self.scale, Tensor) else None, None)

    def transposed(self) -> "Problem":
        """The reduction of the columns, with queries and keys swapped."""
        assert self.bias_M is None and self.keys_MD is not None and self.at_least_N is None
        swapped = self.keys_MD, self.queries_ND
        return replace(self, queries_ND=swapped[0], keys_MD=swapped[1], pairs=self.pairs.transposed(), both=False)

    @property
    def keys(self) -> Tensor:
        """The keys [M, D]."""
        return self.queries_ND if self.keys_MD is None else self.keys_MD

    def sums(self) -> Tensor:
        """Σ_j s_ij, [N], as q_i · (sum of the keys that count): O((N + M)·D), no tiles (no mask, no threshold)."""
        queries_ND, keys_MD = self.scale * self.queries_ND, self.keys
        if self.bias_M is not None:  # s_ij = (scale·q_i, 1) · (k_j, b_j)
            queries_ND = torch.cat([queries_ND, queries_ND.new_ones(len(queries_ND), 1)], 1)
            keys_MD = torch.cat([keys_MD, self.bias_M[:, None]], 1)
        return (queries_ND * self.pairs.sum(keys_MD)).sum(1)

    @property
    def unit_of_t(self) -> float:
        """t/s: log2(e) where powers of 2 are summed, else 1."""
        return LOG2E if self.reduction == "lse" else 1.0

    @cached_property
    def bounded(self) -> bool:
        """True if no exponential can overflow or underflow, so that no maximum is needed.

        Then one exponential serves row i and column j.
        """
        if self.reduction != "lse":
            return True
        return max(self.powers) * self.largest_exponent <= SAFE_EXPONENT[self.queries_ND.dtype]

    @property
    def coarse(self) -> bool:
        """True if t is so large that exp2(t − lse) is wrong by the rounding of t and lse, even above 1."""
        return not self.bounded and COARSE / torch.finfo(self.queries_ND.dtype).eps < self.largest_exponent < math.inf

    @property
    def triangular(self) -> bool:
        """True if the exponentials are symmetric, so that the tiles on and above the diagonal suffice."""
        whole = self.at_least_N is None and self.top_k is None and self.reduction == "lse"
        return whole and self.keys_MD is None and self.bias_M is None and self.pairs.mask is None and self.bounded

    @cached_property
    def largest_exponent(self) -> float:
        """An upper bound of |s|·log2(e), by Cauchy-Schwarz; NaN if an input is; ∞ if it cannot be read in a CUDA graph."""
        if self.exponent is not None:
            return self.exponent
        with torch.no_grad():
            if self.queries_ND.numel() == 0 or self.keys.numel() == 0:
                return 0.0
            known = self.unit and not isinstance(self.scale, Tensor) and self.bias_M is None
            if not known and capturing(self.queries_ND):
                return math.inf
            longest = UNIT
            if not self.unit:
                sides = [self.queries_ND] if self.keys_MD is None else [self.queries_ND, self.keys_MD]
                norms = [float(torch.linalg.vector_norm(side, dim=1).amax()) for side in sides]
                longest = norms[0] * norms[-1]
            bound = abs(float(self.scale)) * longest
            return LOG2E * (bound if self.bias_M is None else bound + float(self.bias_M.abs().amax()))


class Tiles:
    """Tiles of t, which is s·log2(e) for lse and s for other reductions.

    Args:
        problem: the operands and the pairs that count.
        half: `policy.halves` may round operands.
        largest_N: the largest t of each row, which is then subtracted.
    """

    def __init__(self, problem: Problem, half: bool = True, largest_N: Tensor | None = None) -> None:
        self.pairs, self.tile = problem.pairs, problem.tile
        n, m = problem.pairs.shape  # a side shorter than a tile leaves its room to the other
        self.rows = min(n, max(self.tile, self.tile**2 // max(1, min(m, self.tile))))
        self.cols = min(m, max(self.tile, self.tile**2 // max(1, min(n, self.tile))))
        self.queries_ND, self.keys_MD = problem.queries_ND, problem.keys
        self.half = problem.half if half and policy.halves(problem) else None
        self.factors_MD = self.operand(self.keys_MD)
        self.factor = problem.scale * (unit := problem.unit_of_t)
        self.bias_M = None if problem.bias_M is None else problem.bias_M * unit
        self.at_least_N = None if problem.at_least_N is None else problem.at_least_N * unit
        self.largest_N = largest_N
        self._strip: tuple[slice, Tensor] | None = None

    def operand(self, value: Tensor) -> Tensor:
        """``value`` in the precision of the products' operands."""
        return value if self.half is None else value.to(self.half)

    def exponents(self, rows: slice, cols: slice) -> Tensor:
        """t on one tile, −inf for pairs that do not count; a new tensor."""
        if self._strip is None or self._strip[0] != rows:
            # The factor goes to the thin operand, unless that is rounded to half precision.
            strip = self.queries_ND[rows]
            self._strip = rows, strip * self.factor if self.half is None else strip.to(self.half)
        out = products.product(self._strip[1], self.factors_MD[cols], self.queries_ND.dtype)
        if self.half is not None:
            out.mul_(self.factor)
        if self.bias_M is not None:
            out.add_(self.bias_M[cols])
        if self.at_least_N is not None:
            exclude_(out, torch.lt, out, self.at_least_N[rows, None])
        out = self.pairs.hide_(out, rows, cols)
        # The same product, computed again, may be rounded to more than the largest.
        return out if self.largest_N is None else out.sub_(self.largest_N[rows, None]).clamp_max_(0)

    def row_strips(self) -> Iterator[slice]:
        """Strips of queries."""
        return slices(len(self.queries_ND), self.rows)

    def column_tiles(self, rows: slice) -> Iterator[slice]:
        """The columns of a strip's tiles that hold a pair that counts."""
        return (cols for cols in slices(len(self.keys_MD), self.cols) if self.pairs.touches(rows, cols))

    def triangle(self) -> Iterator[tuple[slice, slice]]:
        """Tiles on and above the diagonal that hold a pair that counts."""
        return (tile for tile in triangle(0, len(self.queries_ND), self.tile) if self.pairs.touches(*tile))


def powered(tile_RC: Tensor, powers: Sequence[float]) -> list[Tensor]:
    """exp2(p·t) for each of one or two powers p, one of them in place; a square instead of a second exponential."""
    squared = len(powers) > 1 and powers[1] == 2 * powers[0]
    if len(powers) > 1 and not squared:
        return [(tile_RC * powers[0]).exp2_(), tile_RC.mul_(powers[1]).exp2_()]
    first = (tile_RC if powers[0] == 1 else tile_RC.mul_(powers[0])).exp2_()
    return [first, first * first] if squared else [first]


def below(last: Tensor, scale: float | Tensor) -> Tensor:
    """``last`` less its rounding error: the threshold that keeps similarities equal to ``last`` to rounding."""
    return last - 4 * torch.finfo(last.dtype).eps * (last.abs() + abs(scale))  # type: ignore[operator]


def slices(length: int, size: int) -> Iterator[slice]:
    """0..length in slices of at most ``size``."""
    return (slice(start, min(start + size, length)) for start in range(0, length, max(1, size)))


def triangle(low: int, high: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover each pair low ≤ i ≤ j < high once; blocks on the diagonal (rows == cols) are small."""
    if high - low <= min(tile, max(policy.LEAF, tile // 2)):
        if low < high:
            yield slice(low, high), slice(low, high)
        return
    middle = low + max(1, (high - low) // (2 * tile)) * tile if high - low > tile else (low + high) // 2
    yield from triangle(low, middle, tile)
    for rows, cols in rectangle(middle - low, high - middle, tile):
        yield slice(low + rows.start, low + rows.stop), slice(middle + cols.start, middle + cols.stop)
    yield from triangle(middle, high, tile)


def rectangle(height: int, width: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of a rectangle in squares of 4 × 4, whose keys and gradients stay in the cache."""
    for outer_rows in slices(height, 4 * tile):
        for outer_cols in slices(width, 4 * tile):
            for rows in slices(outer_rows.stop - outer_rows.start, tile):
                for cols in slices(outer_cols.stop - outer_cols.start, tile):
                    yield (
                        slice(outer_rows.start + rows.start, outer_rows.start + rows.stop),
                        slice(outer_cols.start + cols.start, outer_cols.start + cols.stop),
                    )
