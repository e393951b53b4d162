"""A queue of keys from past batches: many negatives at a small batch (MoCo)."""

import torch
from torch import Tensor, nn

from coulomb.checked import checked_whole
from coulomb.negatives.rows import integers, seeded, unit_rows
from coulomb.similarity.collectives import Gather, checked_gather, group_of, rows_in


class Queue(nn.Module):
    """First in, first out: the last ``size`` keys, of unit length, with a label and an id each (He et al., 2020).

        loss = InfoNCELoss(0.2)(queries, keys, queue.keys())
        queue.enqueue(keys, ids=index)          after the loss: else each key is a negative of its own query

    All of it lies in buffers, so a checkpoint of the module it belongs to has it, and a resumed run continues with the
    same keys. On several processes each call of `enqueue` takes the keys of all of them, in the order of ranks, so that
    all queues stay alike; batches may be uneven, and a process without keys calls it with none.

    Args:
        size: K, keys kept at most; 65536 in the paper, 4096 in the authors' CIFAR-10 demo. Need not be a multiple of B.
        dim: D, width of a key.
        fill: ``"empty"``: `keys` grows from none to K; ``"random"``: starts with K random directions, as in the paper,
            label and id unknown.
        seed: of the random fill.
        gather: take the keys of all processes: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call `enqueue`.

    ``len(queue)`` is the number of keys now. The order of `keys`, `labels`, `ids` is one and the same: oldest first.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite keys are a ValueError, a row of zeros a
            `CoulombWarning` (it stays zero).

    >>> queue = Queue(3, 2)
    >>> queue.enqueue(torch.eye(2), ids=torch.tensor([7, 8]))
    >>> queue.enqueue(-torch.eye(2), ids=torch.tensor([9, 10]))
    >>> queue.ids()
    tensor([ 8,  9, 10])
    """

    rows: Tensor
    row_labels: Tensor
    row_ids: Tensor
    born: Tensor
    written: Tensor
    enqueues: Tensor

    def __init__(self, size: int, dim: int, *, fill: str = "empty", seed: int = 0, gather: Gather = "auto") -> None:
        super().__init__()
        self.size, self.dim = checked_whole("size", size), checked_whole("dim", dim)
        if fill not in ("empty", "random"):
            raise ValueError(f"fill must be 'empty' or 'random', got {fill!r}")
        self.fill, self.gather = fill, checked_gather(gather)
        rows = torch.zeros(size, dim)
        if fill == "random":
            rows = nn.functional.normalize(torch.randn(size, dim, generator=seeded(seed)), dim=1)
        self.register_buffer("rows", rows)
        self.register_buffer("row_labels", torch.full((size,), -1))
        self.register_buffer("row_ids", torch.full((size,), -1))
        self.register_buffer("born", torch.zeros(size, dtype=torch.long))  # the enqueue that wrote the row
        # Keys ever written: the next goes to this number modulo size.
        self.register_buffer("written", torch.tensor(size if fill == "random" else 0))
        self.register_buffer("enqueues", torch.tensor(0))

    def __len__(self) -> int:
        return min(int(self.written), self.size)

    def keys(self) -> Tensor:
        """The keys [n, dim], oldest first; a copy, so that `enqueue` may come before the backward pass."""
        return self._ordered(self.rows)

    def labels(self) -> Tensor:
        """Their labels [n], −1 where unknown."""
        return self._ordered(self.row_labels)

    def ids(self) -> Tensor:
        """Their ids [n] (which instance each shows), −1 where unknown."""
        return self._ordered(self.row_ids)

    @torch.no_grad()
    def enqueue(self, keys: Tensor, labels: Tensor | None = None, ids: Tensor | None = None) -> None:
        """Append keys [B, dim] with labels [B] and ids [B]; the oldest go. Of more than ``size`` the last are kept."""
        keys = unit_rows("keys", keys, self.dim).to(self.rows)
        about = torch.stack([integers("labels", labels, keys), integers("ids", ids, keys)], dim=1)
        group = group_of(self.gather)
        keys, about = rows_in(group, keys), rows_in(group, about)
        self.enqueues += 1
        count = len(keys)
        kept = min(count, self.size)
        first = int(self.written) + count - kept
        slots = torch.arange(first, first + kept, device=keys.device) % self.size
        self.rows[slots] = keys[count - kept :]
        self.row_labels[slots] = about[count - kept :, 0]
        self.row_ids[slots] = about[count - kept :, 1]
        self.born[slots] = self.enqueues
        self.written += count

    def staleness(self) -> tuple[float, float]:
        """Mean and largest age of the keys, in calls of `enqueue`; the newest are 0 old, a random fill as old as all.

        (0, 0) for an empty queue.
        """
        if len(self) == 0:
            return 0.0, 0.0
        ages = (self.enqueues - self._ordered(self.born)).double()
        return float(ages.mean()), float(ages.max())

    def _ordered(self, stored: Tensor) -> Tensor:
        """A copy of what is stored, oldest first."""
        written = int(self.written)
        if written <= self.size:
            return stored[:written].clone()
        start = written % self.size
        return torch.cat([stored[start:], stored[:start]])

    def extra_repr(self) -> str:
        """The options, for ``print(queue)``."""
        return f"size={self.size}, dim={self.dim}, fill={self.fill!r}, gather={self.gather!r}"
