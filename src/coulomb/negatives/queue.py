"""A queue of keys from past batches: many negatives with small batches (MoCo)."""

import torch
from torch import Tensor, nn

from coulomb.ground.checked import checked_whole
from coulomb.negatives.rows import integers, unit_rows
from coulomb.similarity.collectives import Gather, checked_gather, gather_group, gather_rows


class Queue(nn.Module):
    """First in, first out: the last ``size`` keys, normalized, with one label and one id each (He et al., 2020).

        loss = InfoNCELoss(0.2)(queries, keys, queue.keys())
        queue.enqueue(keys, ids=index)          after the loss; otherwise each query's positive is among its negatives

    The queue consists of buffers, so the state dict contains it and a resumed run continues with the same keys. With
    several processes each call of `enqueue` takes the keys of all of them in the order of ranks, so that all queues stay
    identical. Batches may be uneven; a process without keys calls it with an empty tensor.

    ``len(queue)`` is the current number of keys. `keys`, `labels` and `ids` have the same order: oldest first.

    Args:
        size: K, maximum number of keys; 65536 in the paper, 4096 in the authors' CIFAR-10 demo. Need not be a multiple
            of B.
        dim: D, width of a key.
        fill: ``"empty"``: `keys` grows from none to K; ``"random"``: starts with K random directions, as in the paper,
            whose labels and ids are unknown.
        seed: seed of the random fill.
        gather: enqueue the keys of all processes: True, False, or ``"auto"``, when torch.distributed is initialized
            with several processes, which must then all call `enqueue`.

    Raises:
        ValueError, TypeError: an argument is invalid, or keys are NaN or infinite. Zero rows stay zero, with a
            `CoulombWarning`.

    >>> queue = Queue(3, 2)
    >>> queue.enqueue(torch.eye(2), ids=torch.tensor([7, 8]))
    >>> queue.enqueue(-torch.eye(2), ids=torch.tensor([9, 10]))
    >>> queue.ids()
    tensor([ 8,  9, 10])

    Shape:
        enqueue(keys, labels, ids): [B, D], [B] and [B].
        keys(): [n, D], n at most K.
        labels(), ids(): [n].
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
            rows = nn.functional.normalize(torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)), dim=1)
        self.register_buffer("rows", rows)
        self.register_buffer("row_labels", torch.full((size,), -1))
        self.register_buffer("row_ids", torch.full((size,), -1))
        self.register_buffer("born", torch.zeros(size, dtype=torch.long))  # the call of `enqueue` that wrote the row
        # Number of keys written so far: the next goes to this number modulo size.
        self.register_buffer("written", torch.tensor(size if fill == "random" else 0))
        self.register_buffer("enqueues", torch.tensor(0))

    def __len__(self) -> int:
        return min(int(self.written), self.size)

    def keys(self) -> Tensor:
        """Returns the keys [n, D], oldest first; a copy, so that `enqueue` may come before the backward pass."""
        return self._ordered(self.rows)

    def labels(self) -> Tensor:
        """Returns the labels of the keys, [n]; −1 where unknown."""
        return self._ordered(self.row_labels)

    def ids(self) -> Tensor:
        """Returns the ids of the keys (the image that each shows), [n]; −1 where unknown."""
        return self._ordered(self.row_ids)

    @torch.no_grad()
    def enqueue(self, keys: Tensor, labels: Tensor | None = None, ids: Tensor | None = None) -> None:
        """Appends keys [B, D] with labels [B] and ids [B] and drops the oldest; of more than ``size`` the last remain."""
        keys = unit_rows("keys", keys, self.dim).to(self.rows)
        tags = torch.full((len(keys), 2), -1, device=keys.device)
        for column, (name, values) in enumerate((("labels", labels), ("ids", ids))):
            if values is not None:
                tags[:, column] = integers(name, values, len(keys))
        group = gather_group(self.gather)
        keys, tags = gather_rows(group, keys), gather_rows(group, tags)
        self.enqueues += 1
        self.written += len(keys)
        keys, tags, end = keys[-self.size :], tags[-self.size :], int(self.written)
        slots = torch.arange(end - len(keys), end, device=keys.device) % self.size
        self.rows[slots], self.born[slots] = keys, self.enqueues
        self.row_labels[slots], self.row_ids[slots] = tags.unbind(1)

    def staleness(self) -> tuple[float, float]:
        """Returns the mean and the largest age of the keys in calls of `enqueue`; (0, 0) for an empty queue.

        The newest keys have age 0; a random fill is as old as the queue.
        """
        if len(self) == 0:
            return 0.0, 0.0
        ages = (self.enqueues - self._ordered(self.born)).double()
        return float(ages.mean()), float(ages.max())

    def _ordered(self, stored: Tensor) -> Tensor:
        """Returns a copy of a buffer, oldest first."""
        oldest = int(self.written) % self.size if len(self) == self.size else 0
        return torch.cat([stored[oldest : len(self)], stored[:oldest]])

    def extra_repr(self) -> str:
        """Returns the options, for ``print(queue)``."""
        return f"size={self.size}, dim={self.dim}, fill={self.fill!r}, gather={self.gather!r}"
