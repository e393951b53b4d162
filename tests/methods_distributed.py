"""Methods trained with DistributedDataParallel, each process with its part of every batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import method_cases
from coulomb.methods.byol import BYOL
from coulomb.methods.instdisc import InstDisc
from coulomb.methods.moco import MoCo

MAKE = {
    "moco": lambda encoder: MoCo(encoder, queue_size=24, embedding_dim=5, momentum=0.8),
    "moco symmetric": lambda encoder: MoCo(
        encoder, queue_size=24, embedding_dim=5, momentum=0.8, symmetric=True, exclude_own=True
    ),
    "instdisc": lambda encoder: InstDisc(encoder, num_images=20, embedding_dim=5, full=True, proximal=0.5),
    "byol": lambda encoder: BYOL(encoder, embedding_dim=5, momentum=0.8),
}


def without_norms(method):
    """Removes batch norms, whose statistics are those of one process."""
    for _, part in list(method.named_modules()):
        for child, inner in list(part.named_children()):
            if isinstance(inner, torch.nn.BatchNorm1d):
                setattr(part, child, torch.nn.Identity())
    return method


def trained(name, steps=6, batch=12):
    """Returns the losses (means over processes) and the saved state after some steps."""
    together = dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    method = without_norms(MAKE[name](method_cases.plain_encoder()))
    model = DistributedDataParallel(method) if together else method
    optimizer, losses = method_cases.optimizer_of(method), []
    share = slice(rank * batch // world, (rank + 1) * batch // world)
    for number in range(steps):
        views = [view[share] for view in method_cases.views(batch=batch, seed=number)]
        index = torch.randperm(20, generator=torch.Generator().manual_seed(number))[
            share if world > 1 else slice(batch)
        ]
        loss = model(views, None, index)
        optimizer.zero_grad()
        loss.backward()
        method.after_batch()
        optimizer.step()
        method.after_update((number + 1) / steps)
        value = loss.detach().clone()
        if together:
            dist.all_reduce(value)
        losses.append(float(value) / world)
    return losses, {key: value.clone() for key, value in method.state_dict().items()}
