"""Cosines of several prefixes of the dimensions at once: the products of all from the tiles of the longest.

With the dimensions cut into blocks at d_1 < … < d_m, and rows of Q and K of unit length,

    s^(k)_ij = scale · r^(k)_i · raw^(k)_ij · c^(k)_j,    raw^(k) = raw^(k−1) + Q[:, block k]·K[:, block k]ᵀ

where r and c are 1/‖prefix‖. Each prefix is reduced from the running tile: products of d_m dimensions instead of Σ d_k. The
backward pass runs from the longest prefix down, with G^(k) = ∂L/∂s^(k):

    H ← H + r^(k)·G^(k)·c^(k),    ∂L/∂Q[:, block k] += scale·H·K[:, block k],    ∂L/∂K[:, block k] += scale·Hᵀ·Q[:, block k]

The gradients of r and c, the radial part of the normalization, are row and column sums of r·G·c·raw. Memory is a few tiles
per thread, a few vectors per prefix, and the products of the widest blocks that are cached for the backward pass. With a group
of processes, keys travel together with their factors, as in `coulomb.similarity.sharded`, and no products are cached.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.checked import ZERO, abstract, eager
from coulomb.similarity import plan, policy
from coulomb.similarity.collectives import Block, Merge, Shards
from coulomb.similarity.engine import NO_SECOND_DERIVATIVE, Cache
from coulomb.similarity.matrix import Over, Similarity
from coulomb.similarity.products import add_product, full_precision
from coulomb.similarity.sharded import visit_problems
from coulomb.similarity.streaming import row_weights
from coulomb.similarity.tiles import LOG2E, SAFE_EXPONENT, UNIT, Problem, Tiles

HIDDEN = -1e30  # product of a pair that does not count: its exponential is 0, and so is its part of r·G·c·raw
# The widest blocks, whose products are cached: three quarters of the dimensions if each prefix is twice the one before.
CACHED = 2
# Least rows of a tile, 3 to 6% faster than the 320 of D = 1,024 where all prefixes are reduced from it.
TILE = 448


def applies(queries: Tensor, pairs: float, dims: Sequence[int], scale: float | Tensor) -> bool:
    """True if the prefixes of these embeddings can be reduced together by `PrefixSimilarity`, which is then faster.

    On a CPU in eager mode, if the matrix of ``pairs`` (∞ for several processes) is too large to be stored, if no exponential
    needs a maximum (τ from 0.018 in fp32), and if the products of all but the longest prefix, which are saved, take longer
    than the additional passes over the tiles.
    """
    if not eager() or abstract(queries) or queries.device.type != "cpu":
        return False
    if len(dims) < 2 or sum(dims[:-1]) < (len(dims) - 1) * policy.current().saved:
        return False
    if plan.resolved("auto", pairs) != "streaming":
        return False
    limit = SAFE_EXPONENT[torch.promote_types(queries.dtype, torch.float32)]
    return abs(float(scale)) * LOG2E * UNIT <= limit


def widths(dims: Sequence[int]) -> list[int]:
    """How many dimensions each prefix adds to the one before."""
    return [last - first for first, last in zip((0, *dims), dims, strict=False)]


def factors(squares: Tensor) -> Tensor:
    """1/‖prefix‖ from ‖prefix‖²; 0 for a prefix of zeros."""
    return squares.clamp_min(ZERO**2).rsqrt().masked_fill(squares < ZERO**2, 0)


def factors_of(rows_ND: Tensor, dims: Sequence[int]) -> Tensor:
    """1/‖prefix‖ of each row, [m, N]; 0 for a prefix of zeros."""
    # split, whose gradient is one tensor, where each slice would have its own
    return factors(torch.stack([block.square().sum(1) for block in rows_ND.split(widths(dims), 1)]).cumsum(0))


def paired_cosines(rows_2ND: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The cosines of each prefix of two tensors that are stacked, [m, N], and `factors` of both, [m, 2, N].

    >>> paired_cosines(torch.tensor([[[0.6, 0.0, 0.8]], [[1.0, 0.0, 0.0]]]), (1, 3))[0]
    tensor([[1.0000],
            [0.6000]])
    """
    squares, products = PairedSums.apply(rows_2ND, tuple(dims))
    both = factors(squares)
    return products * both[:, 0] * both[:, 1], both


class PairedSums(torch.autograd.Function):
    """(‖prefix‖² of two stacked tensors [m, 2, N], their products [m, N]), with their gradient as one tensor."""

    @staticmethod
    def forward(ctx: Any, rows_2ND: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Squares and products."""
        ctx.save_for_backward(rows_2ND)
        ctx.widths = widths(dims)
        blocks = rows_2ND.split(ctx.widths, 2)
        squares = torch.stack([torch.linalg.vector_norm(block, dim=2).square_() for block in blocks]).cumsum_(0)
        return squares, torch.stack([(block[0] * block[1]).sum(1) for block in blocks]).cumsum_(0)

    @staticmethod
    def backward(ctx: Any, grad_m2N: Tensor, grad_mN: Tensor) -> tuple[Tensor, None]:
        """2·x·Σ ∂L/∂‖prefix‖² + y·Σ ∂L/∂(x·y), over the prefixes that have the block."""
        (rows_2ND,) = ctx.saved_tensors
        squares, products = (grad.flip(0).cumsum(0).flip(0) for grad in (2 * grad_m2N, grad_mN))
        out = torch.empty_like(rows_2ND)
        sides = zip(*(tensor.split(ctx.widths, 2) for tensor in (rows_2ND, out)), squares, products, strict=True)
        for rows, block, square, product in sides:
            torch.mul(rows, square[:, :, None], out=block)
            for side in (0, 1):
                block[side].addcmul_(rows[1 - side], product[:, None])
        return out, None


class PrefixSimilarity(Similarity):
    """The cosines of each prefix: `lse`, `lse_both`, `contrast`, `sum` and `mean` return [m, N], one row per prefix.

    Other reductions are those of all dimensions. A prefix of zeros stays zero and gets no gradient.

    Args:
        queries_ND, keys_MD: rows of unit length.
        dims: lengths of the prefixes, ascending; the last one is D.
        query_factors, key_factors: 1/‖prefix‖, [m, N] and [m, M], with gradient; see `factors_of`.
        options: as in `Similarity`, without ``tile``; `applies` is True for it. No bias, no masks, and a guide only where the
            keys are not the queries.

    >>> query, key, dims = torch.eye(2, 3), torch.ones(2, 3) / 3**0.5, (1, 3)
    >>> lengths = {"query_factors": factors_of(query, dims), "key_factors": factors_of(key, dims)}
    >>> PrefixSimilarity(query, key, dims=dims, unit=True, **lengths).lse()
    tensor([[1.6931, 0.6931],
            [1.2705, 1.2705]])
    """

    def __init__(
        self,
        queries_ND: Tensor,
        keys_MD: Tensor | None = None,
        *,
        dims: Sequence[int],
        query_factors: Tensor,
        key_factors: Tensor | None = None,
        **options: Any,
    ) -> None:
        tile = policy.current().tile or max(TILE, policy.tile_for(dims[-1], queries_ND.device))
        super().__init__(queries_ND, keys_MD, tile=tile, **options)
        self.widths = widths(dims)
        self.query_factors, self.key_factors = query_factors, key_factors

    def lse(self, over: Over = "all", *, top_k: int | None = None) -> Tensor:
        """log Σ_j exp s_ij of each prefix, [m, N]; −inf with zero gradient where no pair counts."""
        assert top_k is None
        return self._reduced(self._problem(over))[0]

    def lse_both(self, over: Over = "all") -> tuple[Tensor, Tensor]:
        """(lse of each row [m, N], lse of each column [m, M]) of each prefix."""
        rows, columns = self._reduced(self._problem(over, both=True))
        assert columns is not None
        return rows, columns

    def contrast(
        self, positive: Tensor, over: Over = "negatives", *, both: bool = False, counted: Tensor | None = None
    ) -> Tensor:
        """softplus(lse_i − s_i⁺) of each prefix, [m, N]; ``both``: the mean over rows and the first N columns."""
        assert counted is None
        if not both:
            return softplus(self.lse(over) - positive, threshold=50)
        rows, columns = self.lse_both(over)
        columns = columns[:, : self.shape[0]]
        return (softplus(rows - positive, threshold=50) + softplus(columns - positive, threshold=50)) / 2

    def sum(self, over: Over = "all", *, top_k: int | None = None) -> Tensor:
        """Σ_j s_ij of each prefix, [m, N]; 0 where no pair counts. From sums of keys, O((N + M)·Σ d_k)."""
        assert top_k is None and self.pairs(over).by_class
        return torch.stack([one.sum(over) for one in self._alone()])

    def _alone(self) -> Iterator[Similarity]:
        """The `Similarity` of each prefix by itself."""
        names = "scale", "instances", "queries_lead_keys", "unit", "backend", "group"
        options: dict[str, Any] = {name: getattr(self, name) for name in names} | {"query_ids": self.query_ids}
        keys_of = None if self.self_similar else self.key_factors
        for k, dim in enumerate(accumulate(self.widths)):
            query = self.queries_ND[:, :dim] * self.query_factors[k, :, None]
            if keys_of is None:
                yield Similarity(query, **options)
            else:
                yield Similarity(query, self.keys_MD[:, :dim] * keys_of[k, :, None], key_ids=self.key_ids, **options)

    def _reduced(self, problem: Problem) -> tuple[Tensor, Tensor | None]:
        assert problem.bounded and problem.bias_M is None
        keys = (None, None) if self.self_similar else (self.keys_MD, self.key_factors)
        shards = None if self.group is None else self.shards
        rows, columns = ReducePrefixes.apply(
            self.queries_ND, keys[0], self.query_factors, keys[1], self.scale, problem, tuple(self.widths), shards
        )
        return rows, columns


def caches(problem: Problem, widths: Sequence[int]) -> dict[int, Cache]:
    """Caches for the products of the widest blocks: as many as there is room for, at most `CACHED`."""
    (n, m), dim = problem.pairs.shape, sum(widths)
    room = (1 + problem.both) * dim * policy.current().cached // problem.queries_ND.itemsize
    needed = n * m if problem.keys_MD is not None else n * (n + policy.LEAF) // 2
    count = max(1, min(CACHED, room // needed))
    widest = sorted(range(len(widths)), key=lambda k: -widths[k])[:count]
    return {k: Cache(room // count) for k in widest}


@dataclass(eq=False)
class PrefixTiles:
    """The tiles of a problem, and the factors of each prefix.

    Attributes:
        problem: both operands, the scale and the pairs that count.
        blocks: the dimensions that each prefix adds to the one before.
        rows_mN, columns_mM: 1/‖prefix‖ of queries and keys; 0 for a prefix of zeros.
        caches: raw of the widest blocks, for the backward pass.
    """

    problem: Problem
    blocks: list[slice]
    rows_mN: Tensor
    columns_mM: Tensor
    caches: Mapping[int, Cache]

    def __post_init__(self) -> None:
        self.tiles = Tiles(self.problem)
        self.operands_ND = self.tiles.operand(self.tiles.queries_ND)
        self.itself = self.problem.keys_MD is None
        self.strips = self.tiles.strips(True)  # the same in both passes, which share the cache
        # A zero vector has products of 0, whatever its factor, but pairs that do not count need one above 0.
        unit = self.problem.scale * LOG2E
        self.row_exponents = self.rows_mN.masked_fill(self.rows_mN == 0, 1) * unit
        self.column_exponents = self.columns_mM.masked_fill(self.columns_mM == 0, 1)

    def visit(self, work: Any, *, rows: bool = True, columns: bool = False) -> None:
        """Calls ``work(rows, cols, lane)`` for each tile; of keys that are the queries those on and above the diagonal."""
        if self.itself:
            self.tiles.visit_triangle(lambda rows, cols: work(rows, cols, 0))
        else:
            self.tiles.visit(work, rows=rows, columns=columns, strips=self.strips)

    @property
    def lanes(self) -> int:
        """Number of separate sums of the rows."""
        return 1 if self.itself else self.tiles.lanes

    def products(self, rows: slice, cols: slice, *, backward: bool) -> Iterator[Tensor]:
        """raw of each prefix on a tile: in the forward pass cached, or overwritten by the next one."""
        tiles, size = self.tiles, (rows.stop - rows.start, cols.stop - cols.start)
        before: Tensor | None = None
        for k, block in enumerate(self.blocks):
            cache = self.caches.get(k)
            if backward and cache is not None and (known := cache.of(rows, cols)) is not None:
                yield (before := known)
                continue
            query, key = self.operands_ND[rows, block], tiles.operands_MD[cols, block]
            if not backward and cache is not None and cache.reserve(rows, cols):
                out = cache[rows.start, cols.start] = tiles.queries_ND.new_empty(size)
            else:
                out = tiles.buffer(size, f"raw {k}" if backward else "raw")
            if before is None:
                out.zero_()
            elif before is not out:
                out.copy_(before)
            add_product(out, query, key.T)
            if before is None:
                tiles.pairs.hide_(out, rows, cols).clamp_min_(HIDDEN)
            before = out
            yield out

    def exponentials(self, raw: Tensor, k: int, rows: slice, cols: slice, name: str = "exponentials") -> Tensor:
        """exp s of prefix k on a tile."""
        out = self.tiles.buffer(raw.shape, name)
        torch.mul(raw, self.row_exponents[k, rows, None], out=out)
        return out.mul_(self.column_exponents[k, cols]).exp2_()


def forward(prefixes: PrefixTiles) -> tuple[Tensor, Tensor | None]:
    """(lse of rows [m, N], of columns [m, M] if both)."""
    problem, itself = prefixes.problem, prefixes.itself
    total_LmN = prefixes.rows_mN.new_zeros(prefixes.lanes, *prefixes.rows_mN.shape)
    total_mM = torch.zeros_like(prefixes.columns_mM) if problem.both else None

    def visit(rows: slice, cols: slice, lane: int) -> None:
        for k, raw in enumerate(prefixes.products(rows, cols, backward=False)):
            tile = prefixes.exponentials(raw, k, rows, cols)
            total_LmN[lane, k, rows] += tile.sum(1)
            if itself and rows != cols:
                total_LmN[lane, k, cols] += tile.sum(0)
            if total_mM is not None:
                total_mM[k, cols] += tile.sum(0)

    prefixes.visit(visit, columns=problem.both)
    rows = total_LmN.sum(0).log2_().mul_(1 / LOG2E)
    return rows, None if total_mM is None else total_mM.log2_().mul_(1 / LOG2E)


def backward(
    prefixes: PrefixTiles, weight_mN: Tensor, weight_mM: Tensor | None, need_keys: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """(∂L/∂Q, ∂L/∂K, r·∂L/∂r, c·∂L/∂c), with G^(k) = E^(k)·(w_i + w_j) and E the exponentials.

    Keys that are the queries have G + Gᵀ in place of G, with w of both in ``weight_mN``, and add their gradient to the
    queries'.
    """
    tiles, itself, m = prefixes.tiles, prefixes.itself, len(prefixes.blocks)
    rows_mN, columns_mM = prefixes.rows_mN, prefixes.columns_mM
    weight_mM = weight_mN if itself else weight_mM
    # r·(w_i + w_j)·c as a product of thin matrices, [N, 1 or 2]·[1 or 2, M]
    left, right = [weight_mN * rows_mN], [columns_mM]
    if weight_mM is not None:
        left, right = [*left, rows_mN], [*right, weight_mM * columns_mM]
    left_mN2, right_m2M = torch.stack(left, 2), torch.stack(right, 1)
    grad_LND = tiles.queries_ND.new_zeros(prefixes.lanes, *tiles.queries_ND.shape)
    radial_LmN = rows_mN.new_zeros(prefixes.lanes, *rows_mN.shape)
    grad_MD = torch.zeros_like(tiles.keys_MD) if need_keys and not itself else None
    radial_mM = torch.zeros_like(columns_mM)

    def visit(rows: slice, cols: slice, lane: int) -> None:
        raws = [*prefixes.products(rows, cols, backward=True)]
        size = raws[0].shape
        weights = tiles.buffer(size, "weights")
        total: Tensor | None = None
        for k in reversed(range(m)):
            block = prefixes.blocks[k]
            tile = prefixes.exponentials(raws[k], k, rows, cols, "sum" if total is None else "exponentials")
            tile.mul_(torch.mm(left_mN2[k, rows], right_m2M[k, :, cols], out=weights))
            radial = torch.mul(tile, raws[k], out=weights)
            radial_LmN[lane, k, rows] += radial.sum(1)
            total = tile if total is None else total.add_(tile)
            operand = tiles.operand(total)
            add_product(grad_LND[lane, rows, block], operand, tiles.operands_MD[cols, block])
            if itself and rows != cols:
                radial_LmN[lane, k, cols] += radial.sum(0)
                add_product(grad_LND[lane, cols, block], operand.T, prefixes.operands_ND[rows, block])
            elif grad_MD is not None:
                radial_mM[k, cols] += radial.sum(0)
                add_product(grad_MD[cols, block], operand.T, prefixes.operands_ND[rows, block])

    prefixes.visit(visit, columns=grad_MD is not None)
    grad_ND = grad_LND.sum(0) if prefixes.lanes > 1 else grad_LND[0]
    return grad_ND, grad_MD, radial_LmN.sum(0), radial_mM


class ReducePrefixes(torch.autograd.Function):
    """`forward` and `backward` for autograd: of the keys of this process or, with ``shards``, of the keys of each process."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Rows [m, N] and, if both, columns [m, M]."""
        queries_ND, keys_MD, rows_mN, columns_mM, scale, problem, widths, shards = inputs
        ends = [*accumulate(widths)]
        ctx.blocks = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
        ctx.caches = caches(problem, widths) if any(ctx.needs_input_grad) and shards is None else {}
        found: list[Tensor] = []

        def visit(part: Problem, factors_mC: Tensor, _: Tensor | None) -> Sequence[Tensor]:
            rows, columns = forward(PrefixTiles(part, ctx.blocks, rows_mN, factors_mC, ctx.caches))
            found[:] = [torch.logaddexp(found[0], rows) if found else rows]
            return [] if columns is None else [columns.T]

        with full_precision(queries_ND):
            returned = visit_keys(
                problem, shards, visit, rows_mN if columns_mM is None else columns_mM, None, torch.logaddexp
            )
        rows, columns = found[0], returned[0].T if returned else None
        tensor_scale = scale if isinstance(scale, Tensor) else None
        ctx.save_for_backward(queries_ND, keys_MD, tensor_scale, None, rows_mN, columns_mM, rows, columns)
        ctx.problem, ctx.shards = problem.without_operands(), shards
        ctx.set_materialize_grads(False)
        return rows, columns

    @staticmethod
    def backward(ctx: Any, grad_mN: Tensor | None, grad_mM: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys, their factors and the scale."""
        if torch.is_grad_enabled():
            raise RuntimeError(NO_SECOND_DERIVATIVE)
        *operands, rows_mN, columns_mM, rows, columns = ctx.saved_tensors
        problem = ctx.problem.with_operands(*operands)
        alike, scale = columns_mM is None, problem.scale  # alike: the keys are the queries

        def weights(lse: Tensor, grad: Tensor | None) -> Tensor:
            return row_weights(problem, lse, torch.zeros_like(lse) if grad is None else grad)[0]

        weight_mN, weight_mM = weights(rows, grad_mN), None if columns is None else weights(columns, grad_mM)
        need_keys = ctx.needs_input_grad[0 if alike else 1]
        grad_ND: Tensor | None = None
        radial_mN, grad_scale = torch.zeros_like(rows_mN), rows_mN.new_zeros(())

        def visit(part: Problem, factors_mC: Tensor, weight_mC: Tensor | None) -> Sequence[Tensor]:
            nonlocal grad_ND
            tiles = PrefixTiles(part, ctx.blocks, rows_mN, factors_mC, ctx.caches)
            grad, grad_CD, radial, radial_mC = backward(tiles, weight_mN, weight_mC, need_keys)
            grad_scale.add_(radial.sum() / (2 if tiles.itself else 1))
            if tiles.itself:  # the gradient is complete and counts as that of the keys of this process
                grad_CD, radial_mC = grad, radial
            else:
                grad_ND = grad if grad_ND is None else grad_ND.add_(grad)
                radial_mN.add_(radial)
            return [grad_CD, radial_mC.T] if need_keys and grad_CD is not None else []

        with full_precision(rows_mN):
            returned = visit_keys(problem, ctx.shards, visit, rows_mN if alike else columns_mM, weight_mM, torch.add)
        grad_MD: Tensor | None = None
        radial_mM: Tensor | None = None
        if returned:
            grad_MD, radial_mM = returned[0], returned[1].T
        if alike and grad_MD is not None and radial_mM is not None:
            grad_ND = grad_MD if grad_ND is None else grad_ND.add_(grad_MD)
            radial_mN, grad_MD, radial_mM = radial_mN.add_(radial_mM), None, None
        grad_ND, grad_MD = (None if grad is None else grad.mul_(scale) for grad in (grad_ND, grad_MD))
        factors = [(radial_mN, rows_mN), (radial_mM, columns_mM)]
        grad_mN, grad_mM = (
            None if radial is None else (scale * radial / factor).masked_fill_(factor == 0, 0)
            for radial, factor in factors
        )
        return grad_ND, grad_MD, grad_mN, grad_mM, grad_scale if ctx.needs_input_grad[4] else None, None, None, None


def visit_keys(
    problem: Problem,
    shards: Shards | None,
    visit: Callable[[Problem, Tensor, Tensor | None], Sequence[Tensor]],
    factors_mM: Tensor,
    weight_mM: Tensor | None,
    merge: Merge,
) -> list[Tensor]:
    """Calls ``visit(queries over some keys, factors of these keys, their weights)``: all keys or, with ``shards``, by process.

    Returns what it returned for the keys of this process, one row per key, merged over the processes.
    """
    if shards is None:
        return list(visit(problem, factors_mM, weight_mM))

    def visit_block(_: int, part: Problem, extra: Block) -> Sequence[Tensor]:
        factors_Cm, weight_Cm = extra
        assert factors_Cm is not None
        weight_mC = None if weight_Cm is None else weight_Cm.T.contiguous()
        return [one.contiguous() for one in visit(part, factors_Cm.T.contiguous(), weight_mC)]

    extra = [factors_mM.T.contiguous(), None if weight_mM is None else weight_mM.T.contiguous()]
    return visit_problems(problem, shards, visit_block, extra, merge)
