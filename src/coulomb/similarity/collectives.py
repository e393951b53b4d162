"""Collective operations over the processes of a group: gathering rows, and visiting the keys of every process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable would import the compiler (one second) right away

# Up to this many elements of keys over all processes (4 MiB in fp32) every process receives all of them in one message.
# Above it, blocks travel around a ring, and no process holds more than two blocks of other processes.
GATHER_ELEMENTS = 2**20

LOST_PROCESS = (
    "a process of the group stopped, or did not answer within the group's timeout, while keys were exchanged between "
    "processes; the output of that process says why. All processes must call the same loss the same number of times, forward "
    "and backward (gather=False restricts a loss to one process). The transport reports: {}"
)

# What the message that begins every exchange may announce, and the whole numbers in it. It is equally long for all, so that
# processes that pass different arguments find out, where a transport would end them.
STEPS = {"ids": "labels or ids", "rows": "rows", "sizes": "numbers of rows", "keys": "keys"}
ANNOUNCED = 16

Gather = bool | str
Block = Sequence[Tensor | None]
Visit = Callable[[int, Block], Sequence[Tensor]]
Merge = Callable[[Tensor, Tensor], Tensor]


def checked_gather(gather: Gather) -> Gather:
    """Returns ``gather`` if it is True, False or ``"auto"``; raises ValueError otherwise."""
    if gather not in (True, False, "auto"):
        raise ValueError(f"gather must be True, False or 'auto', got {gather!r}")
    return gather


def gather_group(gather: Gather) -> dist.ProcessGroup | None:
    """Returns the group of processes that share their keys, or None if this process works alone.

    Raises:
        RuntimeError: ``gather=True`` in a program without a process group.
    """
    if gather is False:
        return None
    if not (dist.is_available() and dist.is_initialized()):
        if gather == "auto":
            return None
        raise RuntimeError(
            "gather=True, but torch.distributed is not initialized: call init_process_group first, or use gather='auto'"
        )
    return dist.group.WORLD if dist.get_world_size() > 1 else None


def gather_rows(group: dist.ProcessGroup | None, rows: Tensor) -> Tensor:
    """Returns the rows of all processes in the order of ranks, [ΣN, …]; gradients are summed over processes.

    For small tensors: every process holds the rows of all. Without a group, ``rows`` itself.
    """
    return rows if group is None else _applied(GatherRows, rows, group)


@_disable_dynamo
def _applied(function: Any, value: Tensor, group: dist.ProcessGroup) -> Tensor:
    out: Tensor = function.apply(value, group)
    return out


class GatherRows(torch.autograd.Function):
    """All-gather of rows, as many as each process has; the backward pass sums the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        """[N, …] → [ΣN, …]."""
        numbers = [len(rows), rows[:0].new_empty(1, *rows.shape[1:]).numel(), rows.itemsize, rows.is_floating_point()]
        table = announced(group, "rows", torch.tensor(numbers, device=rows.device))
        for name, column in zip(("width", "bytes per element", "floating dtype"), table[:, 1:].T, strict=True):
            require_equal(f"{name} of rows", column)
        sizes, rank = table[:, 0].tolist(), dist.get_rank(group)
        ctx.group, ctx.local = group, slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return torch.cat(exchange([rows] * len(sizes), sizes, group))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The rows of this process, of the sum over processes."""
        return _all_reduced(grad, ctx.group)[ctx.local], None


def all_reduce_sum(group: dist.ProcessGroup | None, value: Tensor) -> Tensor:
    """Returns Σ ``value`` over the processes; gradients are summed over processes. Without a group, ``value`` itself."""
    return value if group is None else _applied(SumValues, value, group)


class SumValues(torch.autograd.Function):
    """All-reduce by +; the backward pass sums the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: dist.ProcessGroup) -> Tensor:
        """The sum."""
        ctx.group = group
        return _all_reduced(value, group)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sum of the gradients."""
        return _all_reduced(grad, ctx.group), None


def _all_reduced(value: Tensor, group: dist.ProcessGroup) -> Tensor:
    out = value.clone(memory_format=torch.contiguous_format)
    with lost_process_named():
        dist.all_reduce(out, group=group)
    return out


@contextmanager
def lost_process_named() -> Iterator[None]:
    """Turns an error of the transport into a RuntimeError that says what to look for."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(LOST_PROCESS.format(error)) from error


def gather_equal(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Returns ``values`` of every process, stacked, [W, …]; the shape must be the same in all processes."""
    out = values.new_empty(dist.get_world_size(group), *values.shape)
    with lost_process_named():
        dist.all_gather(list(out.unbind(0)), values.contiguous(), group=group)
    return out


@_disable_dynamo
@torch.no_grad()
def announced(group: dist.ProcessGroup, step: str, numbers: Tensor) -> Tensor:
    """Returns the whole ``numbers`` of every process, [W, …] on the host; in all processes the next step must be the same.

    Raises:
        ValueError: processes are at different `STEPS`, in every process.
    """
    message = numbers.new_zeros(ANNOUNCED, dtype=torch.int64)
    message[0], message[1 : 1 + len(numbers)] = list(STEPS).index(step), numbers
    table = gather_equal(message, group).cpu()
    steps = table[:, 0].tolist()
    if len(set(steps)) > 1:
        each = [f"rank {rank} exchanges {list(STEPS.values())[one]}" for rank, one in enumerate(steps)]
        raise ValueError(
            f"processes of the group disagree: {', '.join(each)}; all must call the same loss with the same arguments, such "
            "as labels, ids or a mask in all of them or in none"
        )
    return table[:, 1 : 1 + len(numbers)]


def require_equal(name: str, values: Tensor) -> None:
    """Raises ValueError if the values of the processes differ."""
    if (values != values[0]).any():
        raise ValueError(f"processes of the group differ in {name}: {[int(value) for value in values]}")


def exchange(parts: Sequence[Tensor], sizes: Sequence[int], group: dist.ProcessGroup) -> list[Tensor]:
    """Sends ``parts[r]`` to rank r and returns what each rank sent to this one, [sizes[r], …]."""
    received = parts[0].new_empty(sum(sizes), *parts[0].shape[1:])
    with lost_process_named():
        dist.all_to_all_single(received, torch.cat(list(parts)), list(sizes), list(map(len, parts)), group=group)
    return list(received.split(list(sizes)))


@dataclass(frozen=True)
class Shards:
    """How the keys are spread over the processes of a group.

    Attributes:
        group: the processes.
        rank: the rank of this process.
        sizes: number of keys of each process.
        dim: width of a key.
        exponent: an upper bound of |s|·log2(e) over all queries and keys of the group.
    """

    group: dist.ProcessGroup
    rank: int
    sizes: tuple[int, ...]
    dim: int
    exponent: float

    @property
    def total(self) -> int:
        """Number of keys over all processes."""
        return sum(self.sizes)

    @property
    def gathered(self) -> bool:
        """True if every process receives all keys in one message, False if blocks travel around the ring."""
        return len(self.sizes) * max(self.sizes) * self.dim <= GATHER_ELEMENTS

    @property
    def order(self) -> list[int]:
        """Owners of the blocks in the order of visits: this process, then the ranks before it, as the ring brings them."""
        return [(self.rank - step) % len(self.sizes) for step in range(len(self.sizes))]

    def offset(self, owner: int) -> int:
        """Index of the first key of ``owner`` among the keys of all processes."""
        return sum(self.sizes[:owner])


def visit_all(shards: Shards, block: Block, visit: Visit, merge: Merge = torch.add) -> Sequence[Tensor]:
    """Lets every process visit the block of every process; returns the merged results for the block of this one.

    Args:
        shards: sizes and processes.
        block: tensors of this process that the others need, one row per key; None entries stay None.
        visit: (owner, block of the owner) → result tensors, one row per key of the owner. This process's block comes first.
        merge: combines the results of two processes for the same block.
    """
    return (_visit_gathered if shards.gathered else _visit_ring)(shards, block, visit, merge)


def _visit_gathered(shards: Shards, block: Block, visit: Visit, merge: Merge) -> Sequence[Tensor]:
    group, world = shards.group, len(shards.sizes)
    gathered = [None if part is None else exchange([part] * world, shards.sizes, group) for part in block]
    results: list[Sequence[Tensor]] = [()] * world
    for owner in shards.order:
        results[owner] = visit(owner, [None if parts is None else parts[owner] for parts in gathered])
    sizes = [shards.sizes[shards.rank]] * world
    return [reduce(merge, exchange(parts, sizes, group)) for parts in zip(*results, strict=True)]


def _visit_ring(shards: Shards, block: Block, visit: Visit, merge: Merge) -> Sequence[Tensor]:
    """Passes blocks from each process to the next, the following one already in transit during a visit.

    The results for a block follow it one step behind and reach its owner after the last visit.
    """
    local: Sequence[Tensor] = ()
    results: Sequence[Tensor] = ()
    last = shards.order[-1]
    for owner in shards.order:
        following = [] if owner == last else [_empty_like(part, shards.sizes[owner - 1]) for part in block]
        # A block has no results yet when it reaches the first process after its owner.
        earlier = [_empty_like(part, shards.sizes[owner]) for part in results]
        with _transfer(shards, [*(block if following else []), *results], [*following, *earlier]):
            results = visit(owner, block)
        if owner == shards.rank:
            local, results = results, []
        elif earlier:
            results = [merge(here, there) for here, there in zip(results, earlier, strict=True)]
        block = following
    arrived = [_empty_like(part, len(mine)) for part, mine in zip(results, local, strict=True)]
    with _transfer(shards, results, arrived):
        pass
    return [merge(mine, others) for mine, others in zip(local, arrived, strict=True)]


def _empty_like(part: Tensor | None, rows: int) -> Any:
    return None if part is None else part.new_empty(rows, *part.shape[1:])


@contextmanager
def _transfer(shards: Shards, sent: Block, received: Block) -> Iterator[None]:
    """Sends to the next rank and receives from the previous one while the body runs; complete when it ends."""
    following, previous = (
        dist.get_global_rank(shards.group, (shards.rank + step) % len(shards.sizes)) for step in (1, -1)
    )
    # Tags separate the messages under gloo; NCCL goes by their order. The list keeps the tensors alive until the end.
    messages = [
        dist.P2POp(operation, part.contiguous() if operation is dist.isend else part, peer, shards.group, tag)
        for operation, peer, parts in ((dist.isend, following, sent), (dist.irecv, previous, received))
        for tag, part in enumerate(parts)
        if part is not None and part.numel()
    ]
    with lost_process_named():
        works = dist.batch_isend_irecv(messages) if messages else []
    yield
    with lost_process_named():
        for work in works:
            work.wait()
