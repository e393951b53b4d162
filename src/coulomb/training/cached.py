"""A training step with gradient caching, for your own loop."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from coulomb.ground.checked import warn
from coulomb.ground.errors import InputError
from coulomb.models.micro_batches import batch_norms, require_size, running_in_micro_batches


def cached_step(encoder: nn.Module, loss: Callable[..., Any], views: Sequence[Tensor], micro_batch: int) -> Tensor:
    """Computes ``loss`` and its gradient for a batch of any size; the encoder needs the memory of one micro-batch.

        zᵢ = encoder(views[i])      in micro-batches, without a graph
        loss(z₀, z₁, …)             and ∂loss/∂z, over the whole batch
        ∂loss/∂θ                    each micro-batch once more, with a graph, for its part of ∂loss/∂z

    The gradients of encoder and loss equal those by ``loss(*(encoder(view) for view in views)).backward()``, and are added to
    ``.grad`` in the same way; the time is up to 4/3 of it. Both passes draw the same random numbers (dropout, stochastic
    depth), buffers are updated once, and hooks of parameters are called once, with the sum over micro-batches. Batch norms
    use the statistics of a micro-batch, which is another network; a `CoulombWarning` says so. With several processes, wrap
    the encoder in `torch.nn.parallel.DistributedDataParallel`: gradients are exchanged once, after the last micro-batch.

    Args:
        encoder: images [N, …] → one tensor [N, …]; a projection head may be part of it.
        loss: embeddings of each view, [B, …] each → a scalar, or a tuple that begins with it.
        views: V tensors [B, …] of equal shape; one is enough.
        micro_batch: views that the encoder takes at a time; from V·B on, the step is a plain one.

    Returns:
        The loss, a scalar without gradient.

    Raises:
        InputError: ``micro_batch`` is below 1 (2 with batch norms), there are no views, the encoder does not return a tensor,
            or the loss is no scalar or depends on nothing that learns; or the encoder uses reentrant checkpointing, or a
            tensor that requires a gradient and is not among its parameters.
        RuntimeError: the encoder returned other features in its second pass.

    Shape:
        views: [B, …] each.
        output: scalar.

    >>> from coulomb.losses import NTXentLoss
    >>> encoder, views = torch.nn.Linear(8, 4), [torch.randn(100, 8), torch.randn(100, 8)]
    >>> cached_step(encoder, NTXentLoss(0.2), views, micro_batch=16).shape
    torch.Size([])
    >>> encoder.weight.grad.shape
    torch.Size([4, 8])
    """
    if isinstance(views, Tensor) or not len(views) or not all(isinstance(view, Tensor) for view in views):
        raise InputError("views: must be a list of tensors, one per view")
    if len({view.shape for view in views}) > 1:
        raise InputError(f"views of shapes {[list(view.shape) for view in views]}: must have equal shapes")
    inner = encoder.module if isinstance(encoder, DistributedDataParallel) else encoder
    require_size(micro_batch, inner)
    norms = batch_norms(inner)
    if norms and micro_batch < len(views) * len(views[0]):
        warn(
            f"micro_batch={micro_batch}: {norms} batch norms use the statistics of a micro-batch, so gradients differ from "
            "the statistics of the whole batch; use group norm, or put the batch norms in eval mode"
        )
    with running_in_micro_batches(inner, micro_batch):
        embeddings = encoder(torch.cat(list(views)))
    value = loss(*embeddings.chunk(len(views)))
    value = value[0] if isinstance(value, tuple) else value
    if not isinstance(value, Tensor) or value.ndim:
        raise InputError("loss: must return a scalar; use its option reduction='mean'")
    if not value.requires_grad:
        raise InputError(
            "encoder: the loss depends on no parameter that requires a gradient, neither of the encoder nor of the loss; "
            "unfreeze one (requires_grad=True), or compute the loss without cached_step"
        )
    value.backward()
    return value.detach()
