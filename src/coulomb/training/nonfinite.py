"""When a loss is NaN or infinite: find the first tensor that was, and keep the batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.errors import NonFiniteError


def stop_on_nonfinite(
    model: nn.Module, inputs: dict[str, Tensor], forward: Callable[[], Tensor], folder: Path, step: int
) -> None:
    """Save ``inputs`` to ``folder/nonfinite-batch.pt`` and raise, naming the first non-finite tensor.

    Looked at in this order: the parameters and buffers, the inputs, then, in a repeated forward pass, the output of every
    module as it is computed.

    Raises:
        NonFiniteError: always.
    """
    path = folder / "nonfinite-batch.pt"
    torch.save({name: tensor.detach().cpu() for name, tensor in inputs.items()}, path)
    culprit = _first_in(model, inputs) or _first_in_forward(model, forward) or "the loss itself"
    raise NonFiniteError(
        f"the loss became non-finite at step {step}; first non-finite tensor: {culprit}. "
        f"The batch is saved in {path}. Usual remedies: a lower lr, a longer warm-up, precision 32, a higher temperature"
    )


def _first_in(model: nn.Module, inputs: dict[str, Tensor]) -> str | None:
    for kind, tensors in (
        ("parameter", model.named_parameters()),
        ("buffer", model.named_buffers()),
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
        with torch.no_grad():
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
