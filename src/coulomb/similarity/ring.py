"""How blocks of keys travel: every process sees every block, and what it leaves on a block goes home with it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.similarity.processes import Shards, answered, padded, stacked

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
    everyone = [None if part is None else stacked(padded(part, most), shards.group) for part in block]
    left: dict[int, Sequence[Tensor]] = {}
    for owner in _order(shards):
        size = shards.sizes[owner]
        left[owner] = visit(owner, [None if parts is None else parts[owner, :size] for parts in everyone])
    home = []
    for mine, *others in zip(*(left[owner] for owner in range(shards.world)), strict=True):
        home.append(_returned([mine, *others], shards, merge))
    return home


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
