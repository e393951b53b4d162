"""`Problem`, what a reduction works on, and `Tiles`, the blocks of its matrix S that are computed one at a time."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from coulomb.ground import workers
from coulomb.ground.checked import capturing
from coulomb.ground.machine import exclude_
from coulomb.ground.workers import Task
from coulomb.similarity import policy, products
from coulomb.similarity.guide import Guide
from coulomb.similarity.pairs import Pairs

LOG2E = 1 / math.log(2)
# Sums of up to 2^40 terms of 2^±80 are normal fp32 numbers, and so are the weights g·2^−lse of the backward pass.
SAFE_EXPONENT = {torch.float32: 80.0, torch.float64: 600.0}
COARSE = 2**-8  # error of t to which the lse of a row in fp32 or fp64 may be rounded
UNIT = 1 + 1e-3  # upper bound of the length of a normalized row
LEAST_OF_TRIANGLE = 320  # shortest strips for which another thread saves time, in both directions of a triangle,
LEAST_OF_COLUMNS = 128  # and of columns, in tiles that may have more rows
ALIGNED = 16  # products of strips of other lengths take 15% longer in fp32 (AVX-512)
_NOTHING = torch.empty(0)

Visit = Callable[[slice, slice, int], None]
Strips = tuple[list[slice], list[slice]]


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
        guide: with ``both``, leaves out pairs in their row or in their column, by the limits of pairs (see `Guide.sides`).
        at_least_N: pairs with s below this value of their row do not count; or None.
        top_k: only the k largest of a row count, and ties with the k-th largest, up to rounding; or None. For stored S only.
        unit: rows of both operands have at most unit length, so that their norms need not be computed.
        tile: rows and columns of a tile.
        exponent: an upper bound of |s|·log2(e) if known, or None.
        half: dtype of the operands of the tiles' products, or None. Everything else is in full precision.
        backend: ``"dense"``, ``"stored"``, ``"streaming"`` or ``"attention"``, see `coulomb.similarity.plan.resolved`.
    """

    queries_ND: Tensor
    keys_MD: Tensor | None
    scale: float | Tensor
    bias_M: Tensor | None
    pairs: Pairs
    reduction: str = "lse"
    powers: tuple[float, ...] = (1.0,)
    both: bool = False
    guide: Guide | None = None
    at_least_N: Tensor | None = None
    top_k: int | None = None
    unit: bool = False
    tile: int = 768
    exponent: float | None = None
    half: torch.dtype | None = None
    backend: str = "streaming"

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

    def detached(self) -> "Problem":
        """The problem without gradients."""
        return self.with_operands(*(one.detach() if isinstance(one, Tensor) else one for one in self.operands))  # type: ignore[arg-type]

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
        """Σ_j s_ij, [N], as q_i · (sum of the keys that count): O((N + M)·D), no tiles (pairs `by_class`, no threshold)."""
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
        self.queries_ND, self.keys_MD = problem.queries_ND, problem.keys
        self.half = problem.half if half and policy.halves(problem) else None
        self.operands_MD = self.operand(self.keys_MD)
        self.on_cpu = self.queries_ND.device.type == "cpu"
        self.threads = torch.get_num_threads() if self.on_cpu else 1
        self.scale_of_t = problem.scale * (unit := problem.unit_of_t)
        self.bias_M = None if problem.bias_M is None else problem.bias_M * unit
        self.at_least_N = None if problem.at_least_N is None else problem.at_least_N * unit
        self.largest_N = largest_N
        self._memory = threading.local()

    def operand(self, value: Tensor) -> Tensor:
        """``value`` in the precision of the products' operands."""
        return value if self.half is None else value.to(self.half)

    def exponents(self, rows: slice, cols: slice, *, keep: bool = False) -> Tensor:
        """t on one tile, −inf for pairs that do not count: overwritten by the thread's next tile unless ``keep``."""
        return self.complete_(self._product(rows, cols, keep), rows, cols)

    def counted(self, rows: slice, cols: slice) -> Tensor:
        """1 for pairs that count and 0 for others, on one tile, without a product (no threshold): as `exponents`."""
        zeros = self.buffer((rows.stop - rows.start, cols.stop - cols.start)).zero_()
        return self.pairs.hide_(zeros, rows, cols).gt_(-torch.inf)

    def complete_(self, out: Tensor, rows: slice, cols: slice) -> Tensor:
        """t from the scaled products of its vectors, in place."""
        if self.bias_M is not None:
            out.add_(self.bias_M[cols])
        if self.at_least_N is not None:
            exclude_(out, torch.lt, out, self.at_least_N[rows, None])
        out = self.pairs.hide_(out, rows, cols)
        # The same product, computed again, may be rounded to more than the largest.
        return out if self.largest_N is None else out.sub_(self.largest_N[rows, None]).clamp_max_(0)

    def _product(self, rows: slice, cols: slice, keep: bool) -> Tensor:
        keys_CD = self.operands_MD[cols]
        if self.half is not None:
            queries_RD = self.operand(self.queries_ND[rows])
            return products.half_product(queries_RD, keys_CD, self.queries_ND.dtype).mul_(self.scale_of_t)
        if not self.on_cpu:
            return torch.mm(self._scaled(rows), keys_CD.T)
        size = rows.stop - rows.start, cols.stop - cols.start
        out = self.queries_ND.new_empty(size) if keep else self.buffer(size)
        return torch.mm(self._scaled(rows), keys_CD.T, out=out)

    def _scaled(self, rows: slice) -> Tensor:
        """Queries times the scale: scaling the thin operand rounds less than scaling the tile."""
        strip: tuple[slice, Tensor] | None = getattr(self._memory, "strip", None)
        if strip is None or strip[0] != rows:
            strip = self._memory.strip = rows, self.queries_ND[rows] * self.scale_of_t
        return strip[1]

    def buffer(self, size: Sequence[int], name: str = "tile") -> Tensor:
        """Memory of this thread for a tile [R, C]: malloc would return it to the system after each tile."""
        rows, cols = size
        memory: Tensor | None = getattr(self._memory, name, None)
        if memory is None or memory.numel() < rows * cols:
            memory = self.queries_ND.new_empty(rows * cols)
            setattr(self._memory, name, memory)
        return memory[: rows * cols].view(rows, cols)

    @property
    def lanes(self) -> int:
        """Number of lanes: contiguous shares of the columns, whose sums are separate, so that few rows occupy all threads."""
        row_strips, column_strips = -(-self.pairs.shape[0] // self.tile), -(-self.pairs.shape[1] // self.tile)
        return max(1, min(-(-2 * self.threads // max(1, row_strips)), column_strips)) if self.threads > 1 else 1

    def visit(self, work: Visit, *, rows: bool = True, columns: bool = False, strips: Strips | None = None) -> None:
        """Calls ``work(rows, cols, lane)`` for each tile with a pair that counts, side by side on a CPU.

        Args:
            work: called without gradients. Calls that write to the same place run one after another, in a fixed order.
            rows: whether it writes to what belongs to its rows in its lane.
            columns: whether it writes to what belongs to its columns.
            strips: of rows and of columns, whose rectangles are the tiles; None for `strips`.
        """
        row_strips, column_strips = strips or self.strips(columns)
        share = max(1, -(-len(column_strips) // self.lanes))
        shares = [column_strips[first : first + share] for first in range(0, len(column_strips), share)] or [[]]
        tasks = self._grid(work, row_strips, shares, rows, columns)
        if rows and columns:  # each excludes others of its rows and of its columns
            at_once = (min(len(row_strips) * len(shares), len(column_strips)) + 1) // 2
        else:
            at_once = len(row_strips) * len(shares) if rows else len(column_strips)
        workers.run(tasks, at_once if self.on_cpu else 1)

    def strips(self, columns: bool) -> Strips:
        """Strips of rows and of columns whose rectangles are the tiles. ``columns``: enough of columns for all threads."""
        (n, m), area = self.pairs.shape, self.tile**2
        height = strip_length(n, self.tile)
        wide = max(self.tile, area // height)  # a side shorter than a tile leaves its room to the other
        width = strip_length(m, wide, 2 * self.threads if columns else self.lanes, LEAST_OF_COLUMNS)
        height = strip_length(n, area // width) if width < self.tile else height
        return list(slices(n, height)), list(slices(m, width))

    def _grid(
        self, work: Visit, row_strips: list[slice], shares: list[list[slice]], claim_rows: bool, claim_columns: bool
    ) -> Iterator[Task]:
        """Tasks in bands of two strips of rows per thread; within a band by columns, which stay in the cache.

        If columns are claimed each strip begins at another one.
        """
        for first in range(0, len(row_strips), 2 * self.threads):
            strips = row_strips[first : first + 2 * self.threads]
            for step in range(len(shares[0])):
                for number, rows in enumerate(strips):
                    for lane, share in enumerate(shares):
                        turn = step + (number * len(share) // len(strips) if claim_columns else 0)
                        cols = share[turn % len(share)]
                        if step < len(share) and self.pairs.touches(rows, cols):
                            places = (claim_rows, ("rows", rows.start, lane)), (claim_columns, ("columns", cols.start))
                            claims = tuple(place for claimed, place in places if claimed)
                            yield Task(partial(work, rows, cols, lane), claims)

    def visit_triangle(self, work: Callable[[slice, slice], None]) -> None:
        """Calls ``work(rows, cols)`` for tiles that hold each pair i ≤ j once; it may write to what belongs to either."""
        length = len(self.queries_ND)
        strips = list(slices(length, strip_length(length, self.tile, 2 * self.threads, LEAST_OF_TRIANGLE)))

        def visit(one: int, other: int) -> None:
            tiles = [(strips[one], strips[other])] if one != other else diagonal(strips[one], self.tile)
            for rows, cols in tiles:
                if self.pairs.touches(rows, cols):
                    work(rows, cols)

        tasks = (Task(partial(visit, *pair), pair) for pair in tournament(len(strips)))
        workers.run(tasks, (len(strips) + 1) // 2 if self.on_cpu else 1)


def powered(tile_RC: Tensor, powers: Sequence[float]) -> list[Tensor]:
    """exp2(p·t) for each of one or two powers p, one of them in place; a square instead of a second exponential."""
    squared = len(powers) > 1 and powers[1] == 2 * powers[0]
    if len(powers) > 1 and not squared:
        return [(tile_RC * powers[0]).exp2_(), tile_RC.mul_(powers[1]).exp2_()]
    first = (tile_RC if powers[0] == 1 else tile_RC.mul_(powers[0])).exp2_()
    return [first, first * first] if squared else [first]


def below(last: Tensor, bound: float | Tensor) -> Tensor:
    """``last`` less its rounding error, for |s| ≤ ``bound``: keeps ties with ``last``, up to rounding."""
    return last - 4 * torch.finfo(last.dtype).eps * (last.abs() + abs(bound))  # type: ignore[operator]


def slices(length: int, size: int) -> Iterator[slice]:
    """0..length in slices of at most ``size``."""
    return (slice(start, min(start + size, length)) for start in range(0, length, max(1, size)))


def strip_length(length: int, tile: int, count: int = 1, least: int = 1) -> int:
    """Length of equal strips of at most ``tile``: of a multiple of ``count`` strips, unless shorter than ``least``."""
    strips = max(1, -(-length // tile))
    rounded = -(-strips // count) * count
    equal = -(-length // (rounded if length >= rounded * least else strips))
    return max(1, min(tile, -(-equal // ALIGNED) * ALIGNED))


def diagonal(strip: slice, tile: int) -> Iterator[tuple[slice, slice]]:
    """Tiles that cover each pair i ≤ j of a strip once. On the diagonal (rows == cols) half is redundant: tiles are small."""
    length = strip.stop - strip.start
    if length <= min(tile, max(policy.LEAF, tile // 2)):
        yield strip, strip
        return
    middle = strip.start + length // 2
    first, second = slice(strip.start, middle), slice(middle, strip.stop)
    yield first, second
    yield from diagonal(first, tile)
    yield from diagonal(second, tile)


def tournament(count: int) -> Iterator[tuple[int, int]]:
    """All pairs i ≤ j < count, in rounds in which each number occurs once: the circle method, with an odd circle."""
    circle = list(range(count + 1 - count % 2))
    for _ in circle:
        for place in range(len(circle) // 2 + 1):
            one, other = sorted((circle[place], circle[-1 - place]))
            if other < count:
                yield one, other
        circle.append(circle.pop(0))
