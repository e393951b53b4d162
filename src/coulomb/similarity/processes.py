"""Keys spread over the processes of a group: who has how many, and what all processes tell each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Up to this many elements of keys over all processes (4 MiB in fp32) every process receives all of them at once: one
# message instead of one a process. Above it, blocks go around the ring and no process holds more than two of others.
GATHER_ELEMENTS = 2**20

LOST = (
    "a process of the group stopped, or did not answer within the group's timeout, while keys were exchanged between "
    "processes; what it printed says why. All processes must call the same loss the same number of times, forward and "
    "backward (gather=False keeps a loss to its own process). The transport says: {}"
)


@contextmanager
def answered() -> Iterator[None]:
    """A transport's error as one that says what it means."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(LOST.format(error)) from error


@dataclass(frozen=True)
class Shards:
    """How the keys are spread over a group.

    Attributes:
        group: the processes.
        rank: this one among them.
        sizes: keys of each process.
        dim: width of a key.
        exponent: an upper bound of |s|·log2(e) over all queries and keys of the group.
    """

    group: dist.ProcessGroup
    rank: int
    sizes: tuple[int, ...]
    dim: int
    exponent: float

    @property
    def world(self) -> int:
        """Number of processes."""
        return len(self.sizes)

    @property
    def total(self) -> int:
        """Number of keys over all processes."""
        return sum(self.sizes)

    @property
    def at_once(self) -> bool:
        """Whether every process receives all keys at once; else they go around the ring."""
        return self.world * max(self.sizes) * self.dim <= GATHER_ELEMENTS

    def start(self, owner: int) -> int:
        """Number of the first key of ``owner`` among all, in the order of ranks."""
        return sum(self.sizes[:owner])


def stacked(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The ``values`` of every process, one below the other, [W, …]; they have the same shape everywhere."""
    out = values.new_empty(dist.get_world_size(group), *values.shape)
    with answered():
        dist.all_gather(list(out.unbind(0)), values.contiguous(), group=group)
    return out


def padded(part: Tensor, rows: int) -> Tensor:
    """``part`` with rows of zeros after its own."""
    return torch.cat([part, part.new_zeros(rows - len(part), *part.shape[1:])])


class GatherRows(torch.autograd.Function):
    """The rows of all processes, in the order of ranks; their gradients are summed over processes. For small things."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        """[N, …] → [ΣN, …]."""
        sizes = [int(size) for size in stacked(torch.tensor([len(rows)], device=rows.device), group)]
        rank = dist.get_rank(group)
        ctx.group, ctx.mine = group, slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        parts = stacked(padded(rows, max(sizes)), group)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sum over processes, of the own rows."""
        grad = grad.contiguous().clone()
        with answered():
            dist.all_reduce(grad, group=ctx.group)
        return grad[ctx.mine], None


@torch.compiler.disable
def gather_rows(rows: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The rows of all processes [ΣN, …], in the order of ranks, with gradients summed over processes."""
    out: Tensor = GatherRows.apply(rows, group)
    return out
