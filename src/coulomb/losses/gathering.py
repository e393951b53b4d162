"""The option ``gather`` of losses with in-batch negatives: keys from the batches of all processes.

The convention: each process returns the mean over its own anchors (against the keys of all processes; weighted by
W·its anchors/all anchors, which is 1 for equal batches) and gradients that other processes give to its embeddings come
home summed, so that averaging over processes, as DistributedDataParallel does, gives exactly the loss and the gradient of
one process with the whole batch.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.checked import readable
from coulomb.losses.arguments import reduced
from coulomb.similarity.collectives import rows_in


def reduced_in(group: dist.ProcessGroup | None, loss_N: Tensor, reduction: str, anchors: int | Tensor) -> Tensor:
    """`reduced` so that its mean over the processes of ``group`` is the mean over all their ``anchors``.

    ``"sum"`` and ``"none"`` are of this process's anchors.
    """
    if group is None or reduction != "mean":
        return reduced(loss_N, reduction)
    return loss_N.sum() * (processes_in(group) / anchors)


def processes_in(group: dist.ProcessGroup | None) -> int:
    """How many there are."""
    return 1 if group is None else dist.get_world_size(group)


def summed_in(group: dist.ProcessGroup | None, value: Tensor) -> Tensor:
    """Σ over processes; no gradient."""
    return value.detach() if group is None else rows_in(group, value.detach()[None]).sum(0)


def ids_in(group: dist.ProcessGroup | None, labels_N: Tensor) -> Tensor:
    """Labels as ids; each unknown one (−1) is an id of its own, that no sample of any process shares."""
    if group is None and readable(labels_N) and int(labels_N.min()) >= 0:
        return labels_N
    first = labels_N.max().clamp_min(0) + 1
    if group is not None:
        facts = rows_in(group, torch.stack([first, first.new_tensor(len(labels_N))])[None])
        first = facts[:, 0].max() + facts[: dist.get_rank(group), 1].sum()
    return torch.where(labels_N >= 0, labels_N, first + torch.arange(len(labels_N), device=labels_N.device))


def own_rows(group: dist.ProcessGroup | None, rows: int, like: Tensor) -> slice:
    """Where this process's rows lie in `rows_in`."""
    if group is None:
        return slice(0, rows)
    sizes = rows_in(group, torch.tensor([rows], device=like.device))
    start = int(sizes[: dist.get_rank(group)].sum())
    return slice(start, start + rows)
