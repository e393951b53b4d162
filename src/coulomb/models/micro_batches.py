"""Gradient caching: features and gradients of a large batch, with the activations of a small one in memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from coulomb.ground.errors import InputError

Encode = Callable[[Tensor], Tensor]


def encode_in_micro_batches(encode: Encode, images: Tensor, size: int, module: nn.Module) -> Tensor:
    """Returns ``encode(images)``, computed in micro-batches, with the gradient of all of them (GradCache, Gao et al., 2021).

        forward      f = encode(micro-batch), without a graph, for one micro-batch after the other
        backward     encode(micro-batch) again, now with a graph, and its gradient for ∂L/∂f; summed over micro-batches

    Whatever follows, such as a head and a loss, sees the features of all rows. Activations of one micro-batch at a time are in
    memory, for one more forward pass of all micro-batches but the last, whose graph is kept. Both passes draw the same random
    numbers and begin with the same buffers, and buffers are updated once. The parameters receive their gradients once, after
    the last micro-batch, so that `torch.nn.parallel.DistributedDataParallel` around the module or around a module that
    contains it exchanges them once, and their hooks are called once, with the sum.

    Features must depend on no other rows of the batch; batch norms in training mode use the statistics of a micro-batch.
    Hooks of modules in it are called for each micro-batch.

    Args:
        encode: images [N, …] → features [N, …]; it must do the same in both passes.
        images: [N, …].
        size: rows of the largest micro-batch. All have about the same size. From N on, ``encode`` is called once.
        module: its parameters receive gradients, and its buffers are restored.

    Raises:
        RuntimeError: in the backward pass, if ``encode`` returned other features than in the forward pass.
        InputError: in the backward pass, if ``encode`` uses reentrant checkpointing, or a tensor that requires a gradient and
            is neither a parameter of ``module`` nor the images: its gradient would be lost.
    """
    if len(images) <= size:
        return encode(images)
    count = math.ceil(len(images) / size)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not torch.is_grad_enabled() or not (trained or images.requires_grad):
        return torch.cat([encode(part) for part in images.tensor_split(count)])
    features: Tensor = _TwoPasses.apply(images, encode, count, module, *trained)
    return features


class _TwoPasses(torch.autograd.Function):
    """The two passes of `encode_in_micro_batches`."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, encode: Encode, count: int, module: nn.Module, *trained: nn.Parameter
    ) -> Tensor:
        """[N, …] → features [N, …], without a graph, except for the last micro-batch."""
        device = images.device
        ctx.encode, ctx.count, ctx.module, ctx.trained = encode, count, module, trained
        ctx.random = [part.get_rng_state(*at) for part, at in _generators(device)]
        ctx.buffers = [buffer.clone() for buffer in module.buffers()]
        # A parameter that autocast converts without gradient must not be found in its cache by a pass with gradient.
        ctx.precision = {
            "device_type": device.type,
            "dtype": torch.get_autocast_dtype(device.type),
            "enabled": torch.is_autocast_enabled(device.type),
            "cache_enabled": False,
        }
        *parts, last = images.tensor_split(count)
        with torch.autocast(**ctx.precision):
            rows = [encode(part.clone()) for part in parts]  # copies, because it may change its input in place
            with torch.enable_grad():
                last = last.detach().requires_grad_(ctx.needs_input_grad[0])
                ctx.kept = last, encode(last.clone())
        features = torch.cat([*rows, ctx.kept[1].detach()])
        if not ctx.kept[1].requires_grad:  # the features depend on nothing that learns
            ctx.mark_non_differentiable(features)
        ctx.save_for_backward(images, features, *trained)
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """∂L/∂images, if needed, and ∂L/∂θ of each parameter, summed over micro-batches."""
        images, features, *_ = ctx.saved_tensors  # raises an error if one was modified since
        trained: tuple[nn.Parameter, ...] = ctx.trained
        sums: list[Tensor | None] = [None] * len(trained)
        of_images: list[Tensor] = []
        changed = torch.zeros((), device=features.device)
        others: list[Tensor] = []

        def differentiate(part: Tensor, output: Tensor, upstream: Tensor) -> None:
            wanted = [*trained, part] if part.requires_grad else trained
            seen = _other_leaves(output, wanted, others)
            others[:] = others or seen
            with _without_hooks(trained):
                found = torch.autograd.grad(output, wanted, upstream, allow_unused=True)
            if part.requires_grad:
                of_images.append(torch.zeros_like(part) if found[-1] is None else found[-1])
            for place, new in enumerate(found[: len(trained)]):
                if new is not None:
                    total = sums[place]
                    sums[place] = new.clone() if total is None else total.add_(new)  # ``new`` may share its memory

        parts = list(zip(*(rows.tensor_split(ctx.count) for rows in (images, features, grad)), strict=True))
        kept, ctx.kept = ctx.kept, None
        if kept is not None:  # else this is a second backward pass
            part, again = kept
            differentiate(part, again, parts.pop()[2])
            del kept, again
        with _replayed(ctx.module, ctx.buffers, ctx.random, images.device):
            for rows, first, upstream in parts:
                part = rows.detach().requires_grad_(ctx.needs_input_grad[0])
                with torch.enable_grad(), torch.autocast(**ctx.precision):
                    again = ctx.encode(part.clone())
                difference = (again.detach() - first).norm() / first.norm().clamp_min(1e-30)
                changed = changed.maximum(difference.float())
                differentiate(part, again, upstream)
                del again
        if len(parts) < ctx.count:
            of_images = [*of_images[1:], *of_images[:1]]  # the last one was the first
        dtype = ctx.precision["dtype"] if ctx.precision["enabled"] else features.dtype
        if bool(changed > torch.finfo(dtype).eps ** 0.5):
            raise RuntimeError(
                f"micro_batch: in the backward pass the encoder returned features that differ by {float(changed):.2g} "
                "(relative) from those of the forward pass, so the gradient would be wrong; an encoder in micro-batches must "
                "keep its mode and draw random numbers from torch's global generator only"
            )
        _skip_none([parameter for parameter, total in zip(trained, sums, strict=True) if total is None])
        return (torch.cat(of_images) if of_images else None, None, None, None, *sums)


def _other_leaves(output: Tensor, wanted: Sequence[Tensor], before: Sequence[Tensor]) -> list[Tensor]:
    """Returns the leaves of the graph of ``output`` that are not ``wanted``; ``before``: the leaves of another micro-batch.

    Raises:
        InputError: gradients that a backward pass adds would be lost: of a parameter, of a leaf that both micro-batches
            have, or inside reentrant checkpointing.
    """
    expected, known = {id(leaf) for leaf in wanted}, {id(leaf) for leaf in before}
    leaves: list[Tensor] = []
    seen, nodes = set(), [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "CheckpointFunctionBackward":
            raise InputError(
                "encoder: it uses reentrant checkpointing (torch.utils.checkpoint), whose gradients would be lost; pass "
                "use_reentrant=False, or leave checkpointing out, since a micro-batch bounds the memory already"
            )
        leaf: Any = getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
        if leaf is not None and id(leaf) not in expected:
            if isinstance(leaf, nn.Parameter) or id(leaf) in known:
                raise InputError(
                    f"encoder: it uses a tensor of shape {list(leaf.shape)} that requires a gradient and is not among its "
                    "parameters, so that its gradient would be lost; register it as a parameter of the encoder, or detach it"
                )
            leaves.append(leaf)
        nodes.extend(following for following, _ in node.next_functions)
    return leaves


@contextmanager
def _without_hooks(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Context in which `torch.autograd.grad` calls no hooks of the parameters, since they are called with the sum."""
    hooks = [(parameter, parameter._backward_hooks) for parameter in parameters if parameter._backward_hooks]
    for parameter, _ in hooks:
        parameter._backward_hooks = None
    try:
        yield
    finally:
        for parameter, own in hooks:
            parameter._backward_hooks = own


def _skip_none(unused: Sequence[nn.Parameter]) -> None:
    """Keeps None from the hooks of parameters without a gradient: in one graph they would not be called."""
    for parameter in unused:
        hooks: dict[int, Any] = parameter._backward_hooks or {}
        for number, hook in hooks.items():
            if getattr(hook, "func", None) is not _unless_none:
                hooks[number] = partial(_unless_none, hook)


def _unless_none(hook: Callable[[Tensor], Tensor | None], grad: Tensor | None) -> Tensor | None:
    return None if grad is None else hook(grad)


def _generators(device: torch.device) -> list[tuple[Any, tuple[torch.device, ...]]]:
    """Returns the modules with the global generators that a module on ``device`` draws from, and their arguments."""
    return [(torch, ()), *([] if device.type == "cpu" else [(torch.get_device_module(device), (device,))])]


@contextmanager
def _replayed(module: nn.Module, buffers: list[Tensor], states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Context that begins with these buffers and random states, and restores the current ones at its end."""
    now = [buffer.clone() for buffer in module.buffers()]
    devices = [] if device.type == "cpu" else [device]
    kind = "cuda" if device.type == "cpu" else device.type
    try:
        with torch.random.fork_rng(devices=devices, device_type=kind):
            for (part, at), state in zip(_generators(device), states, strict=True):
                part.set_rng_state(state, *at)
            _assign(module, buffers)
            yield
    finally:
        _assign(module, now)


def _assign(module: nn.Module, values: list[Tensor]) -> None:
    """Sets the buffers. Batch norms save them for the backward pass without using them, hence ``data``: no new version."""
    for buffer, value in zip(module.buffers(), values, strict=True):
        buffer.data.copy_(value)


@contextmanager
def running_in_micro_batches(module: nn.Module, size: int) -> Iterator[None]:
    """Context in which calls of ``module`` run in micro-batches; its forward hooks see all rows.

    Raises:
        InputError: the size is wrong, or the module returns something else than a row for each image.
    """
    require_size(size, module)
    forward, own = module.forward, vars(module).get("forward")

    def encode(images: Tensor) -> Tensor:
        rows = forward(images)
        if not isinstance(rows, Tensor) or not rows.ndim or len(rows) != len(images):
            what = f"tensor of shape {list(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
            raise InputError(f"encoder returned a {what} for {len(images)} images: it must return one tensor [N, …]")
        return rows

    module.forward = lambda images: encode_in_micro_batches(encode, images, size, module)
    try:
        yield
    finally:
        del module.forward
        if own is not None:  # of the instance, as in compiled modules
            module.forward = own


def batch_norms(module: nn.Module) -> int:
    """Returns the number of batch norms that use the statistics of the batch."""
    return sum(isinstance(part, _BatchNorm) and part.training for part in module.modules())


def require_size(size: int, module: nn.Module) -> None:
    """Raises `InputError` for a micro-batch that is no whole number, below 1, or too small for batch norms."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InputError(f"micro_batch={size!r}: must be a whole number of at least 1")
    if size < 2 and batch_norms(module):
        raise InputError(
            f"micro_batch={size}: the encoder has batch norms, whose statistics need at least 2 images; use a larger "
            "micro-batch, or an encoder without batch norm"
        )
