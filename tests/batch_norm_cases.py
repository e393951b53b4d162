"""A network with batch norms on one process, and on several that share its batch."""

import torch
import torch.distributed as dist
from torch import nn

from coulomb.training.batch_norm import share_batch_norms


def network(momentum=0.1):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4, momentum=momentum),
        nn.Flatten(),
        nn.Linear(4 * 16, 5),
        nn.BatchNorm1d(5, affine=False),
    ).double()


def batch():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(12, 3, 6, 6, generator=draw, dtype=torch.float64), torch.randn(
        12, 5, generator=draw, dtype=torch.float64
    )


def figures(model, images, target, weight):
    """Returns outputs, gradients of the mean over all images, and buffers after two batches."""
    for _ in range(2):
        model.zero_grad()
        outputs = model(images)
        (weight * (outputs * target).sum(1).tanh().mean()).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return outputs.detach(), gradients, dict(model.named_buffers())


def alone(momentum):
    return figures(network(momentum), *batch(), 1.0)


def together(sizes, momentum):
    """The same on several processes, of which each has ``sizes[rank]`` images."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = network(momentum)
    assert share_batch_norms(model) == 2
    rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    outputs, gradients, buffers = figures(model, *(part[rows] for part in batch()), sizes[rank] * world / sum(sizes))
    for gradient in gradients.values():  # as DistributedDataParallel does
        dist.all_reduce(gradient)
        gradient /= world
    return outputs, gradients, buffers
