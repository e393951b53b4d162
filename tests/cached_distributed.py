"""A step with gradient caching in a group of processes, each with its part of the batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from coulomb.losses import NTXentLoss
from coulomb.training import cached_step

BATCH = 11


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).double()


def gradients(micro_batch, steps=2):
    """Returns losses (means over anchors of all processes) and the gradients accumulated over some steps, and reductions."""
    together = dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    encoder, loss, losses = network(), NTXentLoss(temperature=0.3), []
    model, reductions = encoder, []
    if together:
        model = DistributedDataParallel(encoder, bucket_cap_mb=100)

        def count(state, bucket):
            reductions.append(bucket.index())
            return dist.all_reduce(bucket.buffer().div_(world), async_op=True).get_future().then(lambda f: f.value()[0])

        model.register_comm_hook(None, count)
    share = slice(rank * BATCH // world, (rank + 1) * BATCH // world)  # 5 and 6 rows of two processes
    for number in range(steps):
        draw = torch.Generator().manual_seed(number)
        views = [torch.rand(BATCH, 1, 8, 8, generator=draw, dtype=torch.double)[share] for _ in range(2)]
        if micro_batch is None:
            value = loss(*model(torch.cat(views)).chunk(2))
            value.backward()
        else:
            value = cached_step(model, loss, views, micro_batch)
        losses.append(value.detach().clone())
    if together:
        for value in losses:
            dist.all_reduce(value)
    return [float(value) / world for value in losses], [p.grad for p in encoder.parameters()], len(reductions)
