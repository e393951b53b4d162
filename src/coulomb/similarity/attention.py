"""Reductions as forward passes of an attention kernel, values and gradients; the same as `coulomb.similarity.streaming`.

One pass of `torch.nn.attention.flex_attention` over scores z gives L_i = log Σ_j exp z_ij and O_i = Σ_j exp(z_ij − L_i) v_j.
With z = s, L is the lse of each row, and O with v = k is its gradient for the query up to the factor. Other gradients come
from passes whose scores contain the weights of the rows: with G_ij = g_i·exp(s_ij − lse_i) and g ≥ 0,

    z_ij = s_ij − lse_i + log g_i,    Σ_i G_ij q_i = exp(L_j)·O_j    with the roles of queries and keys exchanged.

Symmetric S and both directions add two such weights by logaddexp. Where g has both signs, each sign takes a pass.
With u = N·M·D flops, value and gradient cost 2.25u + 4u (symmetric), 8u (one direction), 2·2.25u + 8u (both directions at
D = 128). Two powers take the passes twice. Σ log(1 + exp s) and weighted sums: z = log of the summands, or of their slopes.

On a GPU the kernel is compiled once per family of problems, with operands in the precision of the given rows and sums in
fp32. On a CPU the uncompiled function stores S: for tests. Thresholds (``top_k``) and order statistics are left to the tiles.
"""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, reduce
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad, softplus

from coulomb.ground.checked import capturing, warn
from coulomb.similarity import policy, streaming
from coulomb.similarity.engine import Gradients, Needs, Plan, Reduced
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.products import full_precision
from coulomb.similarity.tiles import Problem

log = logging.getLogger("coulomb")
THIN = 16  # the fewest columns of a kernel's operands
SLOPES = {"softplus": "sigmoid"}  # kinds of passes whose summands are the derivatives of others
CHECKED = 300, 333  # queries and keys of the self-check: full and partial blocks of a kernel
# Errors that rounding explains: of an lse in fp32, and of a gradient relative to its largest entry, by the operands' type.
LSE_ERROR = 5e-4
GRADIENT_ERROR = {torch.bfloat16: 2.0**-5, torch.float16: 2.0**-8, None: 1e-3}


class Weights(NamedTuple):
    """Of one sign, (lse, log |g|): of the rows [N] and, with both directions or symmetric S, of the columns [M]."""

    sign: int
    rows: tuple[Tensor, Tensor]
    columns: tuple[Tensor, Tensor] | None


def forward(problem: Problem, plan: Plan) -> Reduced:
    """Reduces every row (and column); caches the mean key of each row."""
    wide = (plan.attend or plan.learning) and problem.reduction == "lse" and not (problem.both or _symmetric(problem))
    with full_precision(problem.queries_ND):
        if problem.reduction == "sum":
            return Reduced(_sums(problem)[None])
        values_MW = problem.keys if wide else _thin(problem.keys)
        results = [attention_pass(problem, values_MW, power, problem.reduction) for power in problem.powers]
        rows_PN, cached = torch.stack([lse for lse, _ in results]), [mean for _, mean in results] if wide else []
        if problem.reduction == "softplus":
            rows_PN.exp_()
        columns_M = attention_pass(problem, _thin(problem.queries_ND), exchanged=True)[0] if problem.both else None
        return Reduced(rows_PN, columns_M, cached[0] if plan.attend else None, cached)


def backward(
    problem: Problem, plan: Plan, reduced: Reduced, grad_PN: Tensor, grad_M: Tensor | None, needs: Needs
) -> Gradients:
    """The gradients that are needed, as `streaming.backward` returns them."""
    need_queries, need_keys, need_scale, need_bias = needs
    symmetric, itself = _symmetric(problem), problem.keys_MD is None
    need_queries, need_keys = need_queries or need_scale or itself, not symmetric and (need_keys or need_bias or itself)
    means = list(reduced.cached) or ([] if reduced.attended_ND is None else [reduced.attended_ND])
    grad_ND, grad_MD = torch.zeros_like(problem.queries_ND), torch.zeros_like(problem.keys)
    grad_bias_M, slope = torch.zeros_like(grad_MD[:, 0]), SLOPES.get(problem.reduction, problem.reduction)
    with full_precision(problem.queries_ND):
        for p, power in enumerate(problem.powers):
            if means and need_queries:
                grad_ND += means[p] * (power * grad_PN[p])[:, None]
            for weights in _weights(problem, reduced, grad_PN[p], grad_M, p):
                if need_queries and not means:
                    lse_N, mean_ND = attention_pass(problem, problem.keys, power, slope, weights)
                    grad_ND += (weights.sign * power * lse_N.exp())[:, None] * mean_ND
                if need_keys:
                    lse_M, mean_MD = attention_pass(problem, problem.queries_ND, power, slope, weights, exchanged=True)
                    total_M = weights.sign * power * lse_M.exp()
                    grad_bias_M, grad_MD = grad_bias_M + total_M, grad_MD + total_M[:, None] * mean_MD
        grad_scale = (problem.queries_ND * grad_ND).sum() / (2 if symmetric else 1) if need_scale else None
        grad_ND, grad_MD = (grad_ND + grad_MD if itself else grad_ND) * problem.scale, grad_MD * problem.scale
        return Gradients(grad_ND, None if itself else grad_MD, grad_scale, grad_bias_M if need_bias else None)


def attention_pass(
    problem: Problem,
    values: Tensor,
    power: float = 1.0,
    kind: str = "lse",
    weights: Weights | None = None,
    exchanged: bool = False,
) -> tuple[Tensor, Tensor]:
    """(L [N], O [N, W]) of a pass over scores z; −inf and 0 where no pair counts.

    Args:
        problem: the operands and the pairs that count.
        values: [M, W], v.
        power: p in p·s.
        kind: z of a score: ``"lse"`` s, ``"sum"`` 0, ``"softplus"`` log log(1 + exp s), ``"sigmoid"`` log σ(s).
        weights: added to the scores.
        exchanged: keys are the queries of the kernel, and L and O have a row per key.
    """
    sides = (problem.keys, problem.queries_ND) if exchanged else (problem.queries_ND, problem.keys)
    dtype = problem.queries_ND.dtype
    if not len(sides[0]) * len(sides[1]):
        return values.new_full((len(sides[0]),), -torch.inf), values.new_zeros(len(sides[0]), values.shape[1])
    half = problem.half if policy.halves(problem) else None
    operands = [operand.detach().to(half or dtype)[None, None] for operand in (*sides, values)]
    score, width = _score(problem, power, kind, weights, exchanged), values.shape[1]
    kernel: Any = _flex().flex_attention
    if values.device.type != "cpu":
        operands = [pad(operand, (0, max(0, THIN - operand.shape[-1]))).contiguous() for operand in operands]
        types = operands[0].dtype, operands[0].shape[-1], operands[2].shape[-1]
        combined = None if weights is None else weights.columns is not None
        kernel = _compiled((*_family(problem), *types, kind, combined, exchanged))
    with torch.no_grad(), _uncompiled():
        out, aux = kernel(*operands, score_mod=score, scale=1.0, return_aux=_flex().AuxRequest(lse=True))
    return aux.lse[0, 0].to(dtype), out[0, 0, :, :width].to(dtype)


def _score(
    problem: Problem, power: float, kind: str, weights: Weights | None, exchanged: bool
) -> Callable[..., Tensor]:
    """The function from products q·k to scores z. Everything that varies from step to step is in tensors."""
    pairs, dtype = problem.pairs, problem.queries_ND.dtype
    factor = (problem.queries_ND.new_ones(1) * (problem.scale * power)).detach()
    bias_M = None if problem.bias_M is None else problem.bias_M.detach() * power
    rows, columns = (None, None) if weights is None else weights[1:]
    count = None if pairs.instances is None else torch.full((1,), pairs.instances, device=pairs.device)
    mask, same, drop_self = pairs.mask, pairs.same, pairs.drop_self
    ids = [] if pairs.query_ids is None else pairs.columns
    weighting = mask is not None and mask.dtype != torch.bool

    def score(product: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        n, m = (j, i) if exchanged else (i, j)
        z = product * factor[head]
        if bias_M is not None:
            z = z + bias_M[m]
        if kind == "sum":
            z = torch.zeros_like(z)
        elif kind == "softplus":
            z = torch.where(z < -37.0, z, softplus(z, threshold=50).log())  # log(log(1 + exp z)) = z, also in fp64
        elif kind == "sigmoid":
            z = -softplus(-z, threshold=50)
        if rows is not None:  # first the difference, which is exact for the pairs that matter
            row = z - rows[0][n] + rows[1][n]
            z = row if columns is None else torch.logaddexp(row, z - columns[0][m] + columns[1][m])
        if mask is not None:
            return z + mask[n, m].to(dtype).log() if weighting else torch.where(mask[n, m], z, -math.inf)
        if same is not None:
            if count is not None:
                equal = n % count[head] == m % count[head]
            else:
                equal = reduce(torch.logical_or, [query[n] == key[m] for query, key in ids])
            z = torch.where(equal if same else ~equal, z, -math.inf)
        return torch.where(n == m, -math.inf, z) if drop_self else z

    return score


def _weights(problem: Problem, reduced: Reduced, grad_N: Tensor, grad_M: Tensor | None, p: int) -> Iterator[Weights]:
    """The log-weights of the pairs in the gradient of a power: log |g| − lse, for each sign that occurs in g."""
    grads = grad_N if grad_M is None else torch.cat([grad_N, grad_M])
    # Whether a sign occurs is the only value that is read from a GPU.
    least, most = (-1, 1) if capturing(grads) or not grads.numel() else grads.aminmax()

    def of(grad: Tensor, lse: Tensor, sign: int) -> tuple[Tensor, Tensor]:
        logs, empty = (sign * grad).clamp_min(0).log(), lse == -torch.inf
        lse = lse if problem.reduction == "lse" else torch.zeros_like(lse)
        return lse.masked_fill(empty, 0), logs.masked_fill(empty, -torch.inf)

    for sign in [sign for sign, occurs in ((1, most > 0), (-1, least < 0)) if occurs]:
        rows = of(grad_N, reduced.rows_PN[p], sign)
        columns = of(grad_M, reduced.columns_M, sign) if grad_M is not None and reduced.columns_M is not None else None
        yield Weights(sign, rows, rows if _symmetric(problem) else columns)


def _symmetric(problem: Problem) -> bool:
    """True if z_ij = z_ji, so that one pass gives the gradients of both roles of a row."""
    return problem.keys_MD is None and problem.bias_M is None and problem.pairs.mask is None


def _sums(problem: Problem) -> Tensor:
    """Σ_j w_ij s_ij, [N], from the weighted mean key."""
    lse_N, mean_ND = attention_pass(problem, problem.keys, kind="sum")
    sums_N = problem.scale * (problem.queries_ND * mean_ND).sum(1)
    if problem.bias_M is not None:
        sums_N += attention_pass(problem, problem.bias_M[:, None].expand(-1, THIN), kind="sum")[1][:, 0]
    return lse_N.exp() * sums_N


def _thin(side: Tensor) -> Tensor:
    """Placeholder values, for passes of which only the lse is needed."""
    return side.new_zeros(len(side), THIN)


def _flex() -> Any:
    """The module of torch, imported on first use because that takes longer than everything else here."""
    from torch.nn.attention import flex_attention

    if not hasattr(flex_attention, "AuxRequest"):
        raise RuntimeError(
            f"backend='attention' needs torch ≥ 2.9, this is {torch.__version__}: use backend='streaming'"
        )
    return flex_attention


@cache
def _compiled(key: tuple[Any, ...]) -> Any:
    """The compiled kernel of a family. Each has a code object, since torch limits the compilations of one."""
    plain = _flex().flex_attention
    copied = FunctionType(plain.__code__.replace(), plain.__globals__, None, plain.__defaults__, plain.__closure__)
    copied.__kwdefaults__ = plain.__kwdefaults__
    return torch.compile(copied, dynamic=True, fullgraph=True)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Within this block flex_attention, unless compiled, runs as it is written, where it would otherwise trace each call."""
    flex = _flex()
    before, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, True
    try:
        yield
    finally:
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = before


def _family(problem: Problem) -> tuple[Any, ...]:
    """What the kernels of a problem depend on."""
    pairs, operands = problem.pairs, (problem.half, problem.queries_ND.shape[1], problem.keys_MD is None)
    kind = (
        pairs.drop_self,
        pairs.same,
        pairs.instances is not None,
        pairs.width,
        None if pairs.mask is None else pairs.mask.dtype,
    )
    reduction = problem.reduction, len(problem.powers), problem.both, problem.bias_M is not None
    return str(pairs.device), *operands, *reduction, *kind


_agreements: dict[tuple[Any, ...], bool] = {}


def agrees(problem: Problem) -> bool:
    """True if attention passes of the problem's family agree with the tiles, checked at the first use of the family.

    A family that does not agree, or whose kernel cannot be compiled, causes a `CoulombWarning`. While a CUDA graph is
    captured nothing can be checked: families that were not used before take the tiles.
    """
    family = _family(problem)
    if family not in _agreements and not capturing(problem.queries_ND):
        reason = disagreement(problem)
        _agreements[family] = reason is None
        if reason is None:
            log.info("attention: the self-check against the tiles passed for %s", family)
        else:
            warn(f"attention: {reason}; the tiles are used instead for {family}")
    return _agreements.get(family, False)


def disagreement(problem: Problem, forward: Any = forward, backward: Any = backward) -> str | None:
    """Why passes of the problem's family cannot be used: an error, or results on a small problem that differ from tiles'."""
    problem, draw = small_problem(problem), torch.Generator().manual_seed(1)
    needs, shapes = (True, True, True, problem.bias_M is not None), ((len(problem.powers), CHECKED[0]), CHECKED[1:])
    grads = [torch.rand(*shape, generator=draw).to(problem.queries_ND) for shape in shapes]
    upstream = grads[0], grads[1] if problem.both else None

    def results(forward: Any, backward: Any, problem: Problem, plan: Plan) -> tuple[Tensor | None, ...]:
        reduced = forward(problem, plan)
        return reduced.rows_PN, reduced.columns_M, *backward(problem, plan, reduced, *upstream, needs)

    try:
        with policy.override(half_rows=1):
            ours = results(forward, backward, problem, Plan("attention", learning=True))
    except Exception as error:  # compilers raise anything
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
    right = results(streaming.forward, streaming.backward, replace(problem, half=None), Plan("tiles"))
    names = "rows", "columns", *(f"gradients of {name}" for name in Gradients._fields)
    for name, mine, true in zip(names, ours, right, strict=True):
        if mine is not None and true is not None:
            empty = (mine == -torch.inf) & (true == -torch.inf)
            apart, largest = (float(x.masked_fill(empty, 0).abs().max()) for x in (mine - true, true))
            value = name in names[:2]
            if not apart <= (LSE_ERROR * max(1.0, largest) if value else GRADIENT_ERROR[problem.half] * largest):
                return f"{name} differ by {apart:.1e} from the tiles' result"
    return None


def small_problem(problem: Problem) -> Problem:
    """A random problem of the same family, whose operands are exact in half precision."""
    (n, m), pairs = CHECKED if problem.keys_MD is not None else CHECKED[:1] * 2, problem.pairs
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(n + m, problem.queries_ND.shape[1], generator=generator).to(problem.queries_ND)
    queries_ND, keys_MD = normalize(rows).to(problem.half or rows.dtype).to(rows.dtype).split([n, m])
    ids = torch.randint(9 * max(1, pairs.width), (n + m, max(1, pairs.width)), generator=generator).to(pairs.device)
    ids = ids[:, 0] if pairs.width <= 1 else ids
    some: dict[str, Any] = {"instances": n // 2} if pairs.instances else {}
    if pairs.query_ids is not None:
        some = {"query_ids": ids[:n], "key_ids": ids[:n] if problem.keys_MD is None else ids[n:]}
    if pairs.mask is not None:
        some = {"mask": (torch.rand(n, m, generator=generator) > 0.5).to(pairs.mask)}
    operands = (
        queries_ND,
        None if problem.keys_MD is None else keys_MD,
        10.0,
        None if problem.bias_M is None else rows[n:, 0],
    )
    small = replace(problem.without_operands(), pairs=Pairs((n, m), pairs.device, pairs.drop_self, pairs.same, **some))
    return replace(small.with_operands(*operands), exponent=None, unit=False)
