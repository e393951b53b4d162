"""Methods trained with DistributedDataParallel, each process with its part of every batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import method_cases
from coulomb.methods import METHODS
from coulomb.methods.byol import BYOL
from coulomb.methods.instdisc import InstDisc
from coulomb.methods.moco import MoCo
from coulomb.methods.options import accepted_parameters
from coulomb.models import ViewRows
from coulomb.training.batch_norm import share_batch_norms
from method_cases import built

MAKE = {
    "moco": lambda encoder: built(MoCo, encoder, queue_size=24, embedding_dim=5, momentum=0.8),
    "moco symmetric": lambda encoder: built(
        MoCo, encoder, queue_size=24, embedding_dim=5, momentum=0.8, symmetric=True, exclude_own=True
    ),
    "instdisc": lambda encoder: built(InstDisc, encoder, num_images=20, embedding_dim=5, full=True, proximal=0.5),
    "byol": lambda encoder: built(BYOL, encoder, embedding_dim=5, momentum=0.8),
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
        train_row = torch.randperm(20, generator=torch.Generator().manual_seed(number))[
            share if world > 1 else slice(batch)
        ]
        loss = model(ViewRows.of(views), None, train_row)
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


OWN = {
    "instdisc": {"full": True},
    "simclr": {"loss": "hard_simple"},
    "paco": {"queue_size": 16},
    "moco": {"queue_size": 16},
}


def uneven_gradients(name, sizes):
    """Returns the loss of one batch, and its gradients, averaged over processes with ``sizes`` images as training does."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    kind, total = METHODS[name], sum(sizes)
    facts = {"num_images": 40, "class_counts": torch.tensor([20, 12, 8]), "num_classes": 3}
    facts = {key: value for key, value in facts.items() if key in accepted_parameters(kind)[0]}
    method = built(kind, method_cases.plain_encoder(), **facts, **OWN.get(name, {})).double()
    share_batch_norms(method)
    rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1])) if world > 1 else slice(total)
    views = [view[rows].double() for view in method_cases.views(batch=total)]
    draw = torch.Generator().manual_seed(0)
    labels, train_row = (
        torch.randint(3, (total,), generator=draw)[rows],
        torch.randperm(40, generator=draw)[:total][rows],
    )
    loss = method(ViewRows.of(views), labels, train_row)
    if method.local_mean:
        loss = loss * (len(labels) * world / total)
    loss.backward()
    gradients = {key: p.grad for key, p in method.named_parameters() if p.grad is not None}
    loss = loss.detach()
    for value in [loss, *gradients.values()] if world > 1 else []:
        dist.all_reduce(value)
        value /= world
    return float(loss), gradients


def uneven_gradients_of_all(sizes):
    """Returns `uneven_gradients` by method."""
    return {name: uneven_gradients(name, sizes) for name in METHODS}
