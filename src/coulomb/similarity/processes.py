"""Keys spread over the processes of a group: who has how many, and how blocks of them travel. No similarities here."""

from collections.abc import Callable, Iterator, Sequence
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


Block = Sequence[Tensor | None]
Visit = Callable[[int, Block], Sequence[Tensor]]
Merge = Callable[[Tensor, Tensor], Tensor]


def pass_around(shards: Shards, block: Block, visit: Visit, merge: Merge = torch.add) -> Sequence[Tensor]:
    """Every process visits every block; what all of them leave on this process's own block is merged and returned.

    Args:
        shards: sizes and processes.
        block: this process's tensors, one row a key, that others need; None entries stay None.
        visit: (owner, its block) → tensors to leave on it, one row a key. Called for the own block first.
        merge: of what two processes left.
    """
    return (_at_once if shards.at_once else _around_the_ring)(shards, block, visit, merge)


def _at_once(shards: Shards, block: Block, visit: Visit, merge: Merge) -> Sequence[Tensor]:
    most = max(shards.sizes)
    everyone = [None if part is None else stacked(_padded(part, most), shards.group) for part in block]
    left: dict[int, Sequence[Tensor]] = {}
    for owner in _order(shards):
        size = shards.sizes[owner]
        left[owner] = visit(owner, [None if parts is None else parts[owner, :size] for parts in everyone])
    home = []
    for mine, *others in zip(*(left[owner] for owner in range(shards.world)), strict=True):
        home.append(_returned([mine, *others], shards, merge))
    return home


def _padded(part: Tensor, rows: int) -> Tensor:
    return torch.cat([part, part.new_zeros(rows - len(part), *part.shape[1:])])


def _returned(left: Sequence[Tensor], shards: Shards, merge: Merge) -> Tensor:
    """``left`` holds this process's part for each owner; each owner gets all parts that are his, merged."""
    own = left[shards.rank]
    back = own.new_empty(shards.world, *own.shape)
    sent, received = list(map(len, left)), [len(own)] * shards.world
    with answered():
        dist.all_to_all_single(back.flatten(0, 1), torch.cat(list(left)), received, sent, group=shards.group)
    first, *others = back.unbind(0)
    for other in others:
        first = merge(first, other)
    return first


def _around_the_ring(shards: Shards, block: Block, visit: Visit, merge: Merge) -> Sequence[Tensor]:
    """Blocks go from each process to the next, the following one already under way while one is visited.

    What was left on a block follows it one step behind, and comes home after the last visit.
    """
    home: Sequence[Tensor] = ()
    left: Sequence[Tensor] = ()
    last = (shards.rank + 1) % shards.world
    for owner in _order(shards):
        on_its_way = [] if owner == last else [_room(part, shards.sizes[owner - 1]) for part in block]
        # Nobody has left anything on a block before it comes to the first process after its owner's.
        before = [_room(part, shards.sizes[owner]) for part in left]
        handover = _Handover(shards, [*(block if on_its_way else []), *left], [*on_its_way, *before])
        left = visit(owner, block)
        handover.wait()
        if owner == shards.rank:
            home, left = left, []
        elif before:
            left = [merge(here, there) for here, there in zip(left, before, strict=True)]
        block = on_its_way
    arrived = [_room(part, len(mine)) for part, mine in zip(left, home, strict=True)]
    _Handover(shards, left, arrived).wait()
    return [merge(mine, others) for mine, others in zip(home, arrived, strict=True)]


def _order(shards: Shards) -> list[int]:
    """The own block, then those of the processes before, as they come along the ring."""
    return [(shards.rank - step) % shards.world for step in range(shards.world)]


def _room(part: Tensor | None, rows: int) -> Any:
    return None if part is None else part.new_empty(rows, *part.shape[1:])


class _Handover:
    """One exchange with both neighbours of the ring, under way from here until `wait`."""

    def __init__(self, shards: Shards, sent: Sequence[Tensor | None], received: Sequence[Tensor | None]) -> None:
        following, previous = (
            dist.get_global_rank(shards.group, (shards.rank + step) % shards.world) for step in (1, -1)
        )
        # Both are kept until the messages are through. Tags keep gloo's messages apart; NCCL goes by their order.
        self.tensors: list[tuple[Any, int, int, Tensor]] = [
            (dist.isend, following, tag, part.contiguous())
            for tag, part in enumerate(sent)
            if part is not None and part.numel()
        ]
        self.tensors += [
            (dist.irecv, previous, tag, part) for tag, part in enumerate(received) if part is not None and part.numel()
        ]
        moves = [dist.P2POp(move, part, peer, shards.group, tag) for move, peer, tag, part in self.tensors]
        with answered():
            self.works = dist.batch_isend_irecv(moves) if moves else []

    def wait(self) -> None:
        """Until everything has arrived."""
        with answered():
            for work in self.works:
                work.wait()


class GatherRows(torch.autograd.Function):
    """The rows of all processes, in the order of ranks; their gradients are summed over processes. For small things."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup) -> Tensor:
        """[N, …] → [ΣN, …]."""
        sizes = [int(size) for size in stacked(torch.tensor([len(rows)], device=rows.device), group)]
        rank = dist.get_rank(group)
        ctx.group, ctx.mine = group, slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        parts = stacked(_padded(rows, max(sizes)), group)
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
