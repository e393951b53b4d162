"""When a loss is NaN or infinite: find the first tensor that was, and keep the batch."""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.models.saving import write_atomically


def first_nonfinite(model: nn.Module, inputs: dict[str, Tensor], forward: Callable[[], Tensor]) -> str | None:
    """The first tensor that is NaN or infinite, by name; None when all are finite.

    Looked at in this order: the parameters, the inputs, then, in a repeated forward pass, the output of every module as
    it is computed. Buffers are not: the failed pass itself has already spoiled the running statistics.
    """
    return _first_in(model, inputs) or _first_in_forward(model, forward)


def save_batch(inputs: dict[str, Tensor], folder: Path) -> Path:
    """Keep what the step was fed, in ``nonfinite-batch.pt``; read it with ``torch.load(path, weights_only=True)``."""
    path = folder / "nonfinite-batch.pt"
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu() for name, tensor in inputs.items()}, buffer)
    write_atomically(path, buffer.getvalue())
    return path


def _first_in(model: nn.Module, inputs: dict[str, Tensor]) -> str | None:
    for kind, tensors in (
        ("parameter", model.named_parameters()),
        ("input", inputs.items()),
    ):
        for name, tensor in tensors:
            if not bool(torch.isfinite(tensor).all()):
                return f"{kind} {name}"
    return None


def _first_in_forward(model: nn.Module, forward: Callable[[], Tensor]) -> str | None:
    found: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(f"output of {name or 'the method'} ({type(module).__name__})")

        return hook

    hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad(), suppress(ValueError):  # the loss itself refuses what we are looking for
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
