"""Functions that the tests of sharded keys run in several processes: errors, messages and values."""

import os
import time

import torch
import torch.distributed as dist

from coulomb.losses import NTXentLoss, SigmoidLoss, SupConLoss, TripletLoss
from coulomb.similarity import Similarity, collectives, use_backend


def rows(count=6, seed=0):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def message_of(function):
    try:
        function()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def one_dies(gather_elements, in_backward):
    """Rank 1 exits in the middle; the others return the message of their error."""
    collectives.GATHER_ELEMENTS = gather_elements
    x = rows().requires_grad_()
    loss = None
    if in_backward:
        loss = NTXentLoss()(x, x.flip(0))
    if dist.get_rank() == 1:
        os._exit(3)
    return message_of(loss.backward if in_backward else lambda: NTXentLoss()(x, x.flip(0)))


def refusals():
    """Returns the message of each unsupported call."""
    group, x = dist.group.WORLD, rows()
    rank = dist.get_rank()
    keys = rows(5).requires_grad_()

    def dense():
        with use_backend("dense"):
            Similarity(x, group=group).lse("others")

    def twice():
        q = rows().requires_grad_()
        torch.autograd.grad(Similarity(q, group=group).lse("others").sum(), q, create_graph=True)

    labels = torch.ones(6, 3, dtype=torch.long)
    return {
        "mask": message_of(lambda: Similarity(x, group=group).lse(torch.ones(6, 6, dtype=torch.bool))),
        "dense": message_of(dense),
        "twice": message_of(twice),
        "k": message_of(lambda: Similarity(x, group=group).topk(13, "others")),
        "width": message_of(lambda: Similarity(x[:, : 3 + rank], group=group).lse("others")),
        "precision": message_of(lambda: Similarity(x.float() if rank else x, group=group).lse("others")),
        "learning": message_of(lambda: Similarity(x, keys if rank else keys.detach(), group=group).lse()),
        "labels": message_of(lambda: SupConLoss(positives="in", gather=True)(x, labels)),
    }


def received_by_the_ring(count):
    """Returns the size of the largest point-to-point message, forward and backward, and whether keys were gathered."""
    collectives.GATHER_ELEMENTS = 0
    sizes, real = [], dist.P2POp

    def seen(move, part, *arguments):
        sizes.append(part.numel())
        return real(move, part, *arguments)

    dist.P2POp = collectives.dist.P2POp = seen
    try:
        x = rows(count).requires_grad_()
        (forward := Similarity(x, scale=2.0, tile=8, group=dist.group.WORLD)).lse("others").sum().backward()
    finally:
        dist.P2POp = collectives.dist.P2POp = real
    return max(sizes), forward.shards.gathered


def subgroup():
    """Only ranks 1 and 2 of four exchange keys."""
    collectives.GATHER_ELEMENTS = 0
    group = dist.new_group([1, 2])
    rank = dist.get_rank()
    if rank not in (1, 2):
        return None
    x = rows(5, seed=rank).requires_grad_()
    value = Similarity(x, scale=2.0, group=group).lse("others")
    (grad,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), grad


def masked():
    """Returns SupCon with a mask: positives of this process, negatives of all."""
    x, mask = rows(4, seed=dist.get_rank()), torch.eye(4, dtype=torch.bool).flip(0)
    return SupConLoss(0.5, reduction="none")(x, mask=mask)


def values():
    """Returns losses by every reduction and a diagnosis, for the anchors of this process."""
    x, y = rows(4, seed=dist.get_rank()), rows(4, seed=dist.get_rank() + 9)
    labels = torch.tensor([0, 1, 0, 1])
    return {
        "none": NTXentLoss(reduction="none")(x, y),
        "sum": NTXentLoss(reduction="sum")(x, y),
        "compiled": torch.compile(NTXentLoss(), backend="aot_eager")(x, y),
        "mean": NTXentLoss()(x, y),
        "triplets": TripletLoss(reduction="none")(x, labels),
        "hardest": SupConLoss(diagnose=True)(x, labels)[1].hardest_negative,
    }


def one_sleeps(answered):
    """Rank 1 sends no keys until the file ``answered`` exists; rank 0 returns how long it waited, and its message."""
    collectives.GATHER_ELEMENTS = 0
    x = rows().requires_grad_()
    loss = NTXentLoss()(x, x.flip(0))
    deadline = time.monotonic() + 30
    if dist.get_rank() == 1:
        while not answered.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return 0.0, None
    start = time.monotonic()
    message = message_of(loss.backward)
    waited = time.monotonic() - start
    answered.touch()
    return waited, message


def far_apart():
    """Returns value and gradient where the only key that counts, of another process, has the weight e^−2000."""
    rank, group = dist.get_rank(), dist.group.WORLD
    query = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    key = torch.tensor([[1.0], [-2000.0]], dtype=torch.float64)[rank : rank + 1]
    value = Similarity(query, key, instances=1, group=group).lse("negatives")
    (grad,) = torch.autograd.grad(value.sum(), query)
    return value.detach(), grad


def coarse():
    """Returns the largest gradient of logits of 1e17, over the keys of both processes and over all keys in one."""
    whole = torch.randint(-2, 3, (12, 6), generator=torch.Generator().manual_seed(0)) * 2.0**26
    share = slice(0, 6) if dist.get_rank() == 0 else slice(6, 12)
    grads = []
    for options in ({"group": dist.group.WORLD, "tile": 4}, {"backend": "dense"}):
        x = (whole[share] if "group" in options else whole).double().requires_grad_()
        value = Similarity(x, **options).lse("others")
        (grad,) = torch.autograd.grad(value.sum(), x)
        grads.append(float((grad if "group" in options else grad[share]).abs().max()))
    return grads


def disagreements():
    """Returns the message of each call with other arguments in rank 1."""
    rank, group, x, y = dist.get_rank(), dist.group.WORLD, rows(), rows(seed=1)
    labels = torch.arange(6) % 2
    many = torch.eye(6, dtype=torch.bool)
    return {
        "SupCon, labels": message_of(lambda: SupConLoss()(x, *[labels] * rank)),
        "SupCon, several labels": message_of(lambda: SupConLoss()(x, many if rank else labels)),
        "SupCon, numbers of classes": message_of(lambda: SupConLoss()(x, many[:, rank:])),
        "SupCon, a mask": message_of(lambda: SupConLoss()(x, **({"mask": many} if rank else {"labels": labels}))),
        "Sigmoid, ids": message_of(lambda: SigmoidLoss()(x, y, *[labels] * rank)),
        "ids": message_of(lambda: Similarity(x, **{"query_ids": labels} if rank else {}, group=group).lse("all")),
        "another loss": message_of(lambda: TripletLoss()(x, labels) if rank else NTXentLoss()(x, y)),
        "width": message_of(lambda: TripletLoss()(x[:, rank:], labels)),
        "dtype": message_of(lambda: TripletLoss()(x.float() if rank else x, labels)),
        "equal arguments": message_of(lambda: SupConLoss()(x, labels)),
    }
