"""What a fold works on, as one value, and its tiles."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from coulomb.similarity import products
from coulomb.similarity.pairs import Pairs

LOG2E = 1 / math.log(2)
# Elements of a tile and of its two operands together: 3 MiB in fp32, which two cores hold in their caches between the
# product, exp2 and the sums. 768 rows and columns at D = 128, 512 at D = 512.
WORKING_SET = 3 * 2**18
LEAF = 384  # size of the blocks on the diagonal, the only place where the triangle's path computes an element twice
# Sums of up to 2^40 terms of 2^±80 are normal fp32 numbers, and so are the weights g·2^−lse of the backward pass.
SAFE_EXPONENT = {torch.float32: 80.0, torch.float64: 600.0}
HALF_ROWS = 1024  # fewer queries or keys gain nothing by half-precision products
HALF_EXPONENT = 30.0  # τ of .05 and above: a rounding of s below .04
# Exponentials that wait for the backward pass, in bytes for each dimension of the rows and of the keys if those are others:
# the longer vectors are, the more a kept one saves. 48 MiB at D = 128; all of 8,192 rows with themselves at D = 384.
KEPT_BYTES = 3 * 2**17
LEAST_KEPT = 1 / 4  # of all exponentials: keeping fewer gains nothing that can be measured
_NOTHING = torch.empty(0)
UNIT = 1 + 1e-3  # a row that was scaled to length 1 is no longer than this


@dataclass(eq=False)
class Problem:
    """log Σ_j w_ij exp(p·s_ij) for each power p, over the pairs that count; s = scale·Q·Kᵀ + bias.

    Args:
        queries_ND, keys_MD: operands; None for the keys means that they are the queries.
        scale: a number or a 0-dim tensor.
        bias_M: a bias for each column, or None.
        pairs: which pairs count.
        powers: the p, each in turn; more than one share each tile's product.
        both: also the same fold along the columns, from the same tiles (one power only).
        at_least_N: pairs with s below their row's value do not count; or None.
        top_k: only the k largest of each row count (`below` the last of them is left out); or None. For stored S alone.
        linear: Σ_j s_ij instead of the lse.
        unit: rows of both operands are known to be no longer than 1, so that their norms need not be looked at.
        tile: rows and columns of a tile.
        half: dtype of the operands of the tiles' products, with results, sums and everything else in full; or None.
        exponent: an upper bound of |s|·log2(e) that is known already, so that nothing need be looked at; or None.
    """

    queries_ND: Tensor
    keys_MD: Tensor | None
    scale: float | Tensor
    bias_M: Tensor | None
    pairs: Pairs
    powers: tuple[float, ...] = (1.0,)
    both: bool = False
    at_least_N: Tensor | None = None
    linear: bool = False
    unit: bool = False
    tile: int = 768
    exponent: float | None = None
    half: torch.dtype | None = None
    top_k: int | None = None

    def without_operands(self) -> "Problem":
        """Everything but the tensors that may carry gradients, to be kept until the backward pass."""
        out = copy(self)
        out.queries_ND, out.keys_MD, out.bias_M = _NOTHING, None, None
        if isinstance(self.scale, Tensor):
            out.scale = 1.0
        return out

    def with_operands(
        self, queries_ND: Tensor, keys_MD: Tensor | None, scale: Tensor | None, bias_M: Tensor | None
    ) -> "Problem":
        """The whole problem again; without ``scale``, its number."""
        out = copy(self)
        out.queries_ND, out.keys_MD, out.bias_M = queries_ND, keys_MD, bias_M
        if scale is not None:
            out.scale = scale
        return out

    @property
    def keys(self) -> Tensor:
        """The keys [M, D]."""
        return self.queries_ND if self.keys_MD is None else self.keys_MD

    @cached_property
    def bounded(self) -> bool:
        """True when no exponential can leave the range of its type, so that no maximum is needed.

        Then one exponential serves row i and column j alike.
        """
        return self.linear or max(self.powers) * self._largest_exponent() <= SAFE_EXPONENT[self.queries_ND.dtype]

    @property
    def triangular(self) -> bool:
        """True when E = Eᵀ, so that the tiles on and above the diagonal suffice."""
        whole = self.at_least_N is None and self.top_k is None and not self.linear
        return whole and self.keys_MD is None and self.bias_M is None and self.pairs.mirrored and self.bounded

    @property
    def room_to_keep(self) -> int:
        """How many exponentials shall wait for the backward pass, each of which saves 2·D flops there.

        Where a row's gradient takes the sums of other rows, so that it cannot be made in the forward pass.
        """
        (n, dim), m = self.queries_ND.shape, len(self.keys)
        if not (self.triangular or self.both) or len(self.powers) > 1 or self.pairs.mask is not None:
            return 0
        room = (1 + self.both) * dim * KEPT_BYTES // self.queries_ND.itemsize
        return room if room >= LEAST_KEPT * (n * m if self.both else n * (n + LEAF) / 2) else 0

    @property
    def halves_well(self) -> bool:
        """Do products of half-precision operands gain time and cost no more exactness than dense PyTorch loses?

        bfloat16 rounds s by up to 2⁻⁹·scale, and what the products lose in small tiles is not won back.
        """
        return min(self.pairs.shape) >= HALF_ROWS and self._largest_exponent() <= HALF_EXPONENT

    def _largest_exponent(self) -> float:
        """An upper bound of |s|·log2(e), by Cauchy-Schwarz; NaN if an input is."""
        if self.exponent is not None:
            return self.exponent
        with torch.no_grad():
            if self.queries_ND.numel() == 0 or self.keys.numel() == 0:
                return 0.0
            longest = UNIT
            if not self.unit:
                first = float(torch.linalg.vector_norm(self.queries_ND, dim=1).amax())
                other = self.keys_MD
                longest = first * (first if other is None else float(torch.linalg.vector_norm(other, dim=1).amax()))
            bound = abs(float(self.scale)) * longest
            return LOG2E * (bound if self.bias_M is None else bound + float(self.bias_M.abs().amax()))


class Tiles:
    """Tiles of t = s·log2(e), each computed into the same buffer."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.pairs, self.tile = problem, problem.pairs, problem.tile
        n, m = problem.pairs.shape  # a side that is shorter than a tile leaves its room to the other
        self.rows = min(n, max(self.tile, self.tile**2 // max(1, min(m, self.tile))))
        self.cols = min(m, max(self.tile, self.tile**2 // max(1, min(n, self.tile))))
        self.queries_ND, self.keys_MD = problem.queries_ND, problem.keys
        self.half = problem.half if problem.halves_well else None
        self.factors_MD = self.operand(self.keys_MD)
        self.factor = problem.scale * LOG2E
        self.bias_M = None if problem.bias_M is None else problem.bias_M * LOG2E
        self.at_least_N = None if problem.at_least_N is None else problem.at_least_N * LOG2E
        self.buffer = self.new_buffer()
        self._strip: tuple[slice, Tensor] | None = None

    def operand(self, value: Tensor) -> Tensor:
        """``value`` in the precision that the products take."""
        return value if self.half is None else value.to(self.half)

    def new_buffer(self) -> Tensor:
        """Room for one tile, flat."""
        return self.queries_ND.new_empty(self.rows * self.cols)

    def exponents(self, rows: slice, cols: slice) -> Tensor:
        """t on one tile, −inf where a pair does not count. Valid until the next tile is asked for; may be changed."""
        if self._strip is None or self._strip[0] != rows:
            # The factor goes to the thin operand, but not where that is rounded to half precision.
            strip = self.queries_ND[rows]
            self._strip = rows, strip * self.factor if self.half is None else strip.to(self.half)
        out = products.scores(self._strip[1], self.factors_MD[cols], self.buffer)
        if self.half is not None:
            out.mul_(self.factor)
        if self.bias_M is not None:
            out.add_(self.bias_M[cols])
        if self.at_least_N is not None:
            out.masked_fill_(out < self.at_least_N[rows, None], -torch.inf)
        return self.pairs.hide_(out, rows, cols)

    def row_blocks(self) -> Iterator[slice]:
        """Strips of queries."""
        return blocks(len(self.queries_ND), self.rows)

    def col_blocks(self, rows: slice) -> Iterator[slice]:
        """Blocks of keys with a pair that counts."""
        return (cols for cols in blocks(len(self.keys_MD), self.cols) if self.pairs.touches(rows, cols))

    def triangle(self) -> Iterator[tuple[slice, slice]]:
        """Tiles on and above the diagonal with a pair that counts."""
        return (tile for tile in triangle(0, len(self.queries_ND), self.tile) if self.pairs.touches(*tile))


def powered(tile_RC: Tensor, powers: Sequence[float], scratch: Tensor | None) -> Iterator[Tensor]:
    """exp2(p·t) for each power p, ascending; the last one in place. ``scratch`` (flat) is needed for more than one.

    A power that is twice the one before it is its square, which costs no exponential.
    """
    if len(powers) == 1:
        yield (tile_RC if powers[0] == 1 else tile_RC.mul_(powers[0])).exp2_()
        return
    assert scratch is not None
    room = scratch[: tile_RC.numel()].view_as(tile_RC)
    first, second = powers
    yield torch.exp2(torch.mul(tile_RC, first, out=room), out=room)
    if second == 2 * first:
        yield torch.mul(room, room, out=tile_RC)
    else:
        yield tile_RC.mul_(second).exp2_()


def below(last: Tensor, scale: float | Tensor) -> Tensor:
    """The largest similarity less its rounding, so that what equals it to rounding is not left out."""
    size = scale.abs() if isinstance(scale, Tensor) else abs(scale)
    return last - 4 * torch.finfo(last.dtype).eps * (last.abs() + size)


def tile_for(dim: int) -> int:
    """Rows and columns of a tile for vectors of ``dim`` numbers: T(T + 2D) within the working set, a multiple of 64."""
    side = math.isqrt(dim * dim + WORKING_SET) - dim
    return max(128, side // 64 * 64)


def blocks(length: int, size: int) -> Iterator[slice]:
    """0..length in slices of at most ``size``."""
    return (slice(start, min(start + size, length)) for start in range(0, length, max(1, size)))


def triangle(low: int, high: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover each pair low ≤ i ≤ j < high once; blocks on the diagonal (rows == cols) are small."""
    if high - low <= min(tile, LEAF):
        if low < high:
            yield slice(low, high), slice(low, high)
        return
    middle = low + max(1, (high - low) // (2 * tile)) * tile if high - low > tile else (low + high) // 2
    yield from triangle(low, middle, tile)
    for rows, cols in rectangle(middle - low, high - middle, tile):
        yield (
            slice(low + rows.start, low + rows.stop),
            slice(middle + cols.start, middle + cols.stop),
        )
    yield from triangle(middle, high, tile)


def rectangle(height: int, width: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of a rectangle, a square of 4 × 4 after another: its keys and gradients stay in the cache meanwhile."""
    for outer_rows in blocks(height, 4 * tile):
        for outer_cols in blocks(width, 4 * tile):
            for rows in blocks(outer_rows.stop - outer_rows.start, tile):
                for cols in blocks(outer_cols.stop - outer_cols.start, tile):
                    yield (
                        slice(outer_rows.start + rows.start, outer_rows.start + rows.stop),
                        slice(outer_cols.start + cols.start, outer_cols.start + cols.stop),
                    )


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Autocast off: the operands are already in the precision that they need."""
    kind = like.device.type
    on = kind != "meta" and torch.is_autocast_enabled(kind)  # torch has no autocast for meta tensors
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def transformed() -> bool:
    """Under a transform of torch.func, outside a graph being compiled: only plain operators, which every transform knows."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def eager() -> bool:
    """Neither in a graph being compiled nor under a transform of torch.func: autograd functions of our own may be used."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
