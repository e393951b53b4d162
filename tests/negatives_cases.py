"""Functions that the tests of queue and memory bank run in several processes."""

import torch
import torch.distributed as dist

from coulomb.negatives import MemoryBank, Queue


def batch(step, rank, count, dim=3):
    """Returns rows, labels and ids of one process; ids overlap between processes."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    rows = torch.randn(count, dim, generator=draw)
    return rows, torch.arange(count) % 2, (torch.arange(count) * 2 + rank + step) % 11


def enqueued(counts, gather="auto"):
    queue = Queue(7, 3, fill="random", gather=gather)
    rank = dist.get_rank()
    for step in range(3):
        queue.enqueue(*batch(step, rank, counts[rank]))
    return {"keys": queue.keys(), "labels": queue.labels(), "ids": queue.ids(), "enqueues": int(queue.enqueues)}


def banked(counts, path):
    bank = MemoryBank(11, 3, path=path)
    rank = dist.get_rank()
    seen = []
    for step in range(3):
        rows, _, ids = batch(step, rank, counts[rank])
        bank.update(ids, rows)
        seen.append(bank.lookup(torch.arange(11)))
    return seen, int(bank.updates)
