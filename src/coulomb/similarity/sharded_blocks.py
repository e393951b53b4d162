"""A problem whose keys are spread over processes, as one problem for each block of keys."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.similarity.pairs import Pairs
from coulomb.similarity.problem import LOG2E, UNIT, Problem
from coulomb.similarity.processes import Shards, stacked
from coulomb.similarity.ring import Block, Visit, pass_around

DTYPES = (torch.float32, torch.float64)


@torch.compiler.disable
@torch.no_grad()
def shards_of(problem: Problem, group: dist.ProcessGroup, learning: bool) -> Shards:
    """What the processes must know of each other, by one small message. ``problem``: the own queries and keys.

    Raises:
        ValueError: processes differ in more than the number of their queries and keys.
    """
    queries, keys, bias = problem.queries_ND, problem.keys, problem.bias_M
    same = {
        "width": queries.shape[1],
        "precision": DTYPES.index(queries.dtype),
        "column_bias": bias is not None,
        "keys that are the queries": problem.keys_MD is None,
        "requires_grad of the queries": learning and queries.requires_grad,
        "requires_grad of the keys": learning and keys.requires_grad,
        "requires_grad of scale": learning and isinstance(problem.scale, Tensor) and problem.scale.requires_grad,
    }
    longest = [UNIT if problem.unit else _largest(torch.linalg.vector_norm(side, dim=1)) for side in (queries, keys)]
    bounds = [*longest, abs(float(problem.scale)), 0.0 if bias is None else _largest(bias.abs())]
    own = torch.tensor([len(keys), *map(float, same.values()), *bounds], dtype=torch.float64, device=queries.device)
    table = stacked(own, group).cpu()
    for name, column in zip(same, table[:, 1:].T, strict=False):
        if (column != column[0]).any():
            raise ValueError(f"processes of the group differ in {name}: {[int(value) for value in column]}")
    query, key, scale, bias_bound = table[:, -len(bounds) :].amax(0).tolist()
    sizes = tuple(int(size) for size in table[:, 0])
    return Shards(group, dist.get_rank(group), sizes, queries.shape[1], LOG2E * (scale * query * key + bias_bound))


def _largest(values: Tensor) -> float:
    return float(values.amax()) if len(values) else 0.0


def block_of(problem: Problem) -> list[Tensor | None]:
    """What of a process's keys others need: the keys, their bias, their ids."""
    return [problem.keys, problem.bias_M, problem.pairs.key_ids]


def over_block(problem: Problem, shards: Shards, owner: int, block: Block) -> Problem:
    """The own queries against the block of ``owner``."""
    if owner == shards.rank:
        return replace(problem, exponent=shards.exponent)
    keys_MD, bias_M, key_ids = block[:3]
    assert keys_MD is not None
    pairs, shape = problem.pairs, (len(problem.queries_ND), len(keys_MD))
    # "self" and `instances` mean rows of this process: of other processes' keys all count, or by their ids.
    if pairs.key_ids is None:
        apart = Pairs(shape, pairs.device)
    else:
        apart = Pairs(shape, pairs.device, same=pairs.same, query_ids=pairs.query_ids, key_ids=key_ids)
    return replace(problem, keys_MD=keys_MD, bias_M=bias_M, pairs=apart, exponent=shards.exponent)


def stays_here(pairs: Pairs) -> bool:
    """True when no other process has a key that counts."""
    return pairs.same is True and pairs.key_ids is None


def around(
    problem: Problem, shards: Shards, block: Block, visit: Visit, merge: Callable[[Tensor, Tensor], Tensor] = torch.add
) -> list[Tensor]:
    """`pass_around`, or the own block alone where no other process has a key that counts."""
    if stays_here(problem.pairs):
        return list(visit(shards.rank, block))
    return list(pass_around(shards, block, visit, merge))
