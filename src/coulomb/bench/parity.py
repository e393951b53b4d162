"""Is the result right? Only then is its speed worth a number."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coulomb.bench import dense
from coulomb.bench.cases import Case
from coulomb.bench.contenders import Step, dense_eager
from coulomb.bench.inputs import Inputs
from coulomb.bench.memory import dense_bytes, too_large

# Relative to the loss, and to the largest entry of a gradient, in fp32; and for fp64.
TOLERANCE = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-10, 1e-8)}
ROUNDED = (1e-4, 5e-3)  # fp32 inside, gradients rounded to bf16: 2⁻⁸
PEER_TOLERANCE = (1e-3, 1e-2)  # enough to know that it is the same loss


@dataclass(frozen=True)
class Reference:
    """The right result, (loss, gradients), what made it, and the differences from it that rounding explains."""

    result: tuple[Tensor, ...]
    made_by: str
    tolerance: tuple[float, float]


def reference(case: Case, inputs: Inputs) -> Reference | None:
    """Dense in fp64 where that fits the machine's memory, else dense in fp32, else dense in strips; None if none is.

    Half-precision inputs are allowed the error of dense PyTorch in their own type, and 1e-5.
    """
    dtype = case.torch_dtype
    half = dtype not in TOLERANCE
    for wide, made_by in ((torch.float64, "dense, fp64"), (torch.float32, "dense, fp32")):
        if too_large(dense_bytes(case, itemsize=wide.itemsize), inputs.arguments[0].device.type) is None:
            result = dense_eager(case)(inputs.to(wide))
            return Reference(result, made_by, _of_half(case, inputs, result) if half else TOLERANCE[dtype])
    in_strips = dense.IN_STRIPS.get(case.dense)
    if in_strips is None or half:
        return None
    return Reference(in_strips(*inputs.arguments, **case.options), "dense in strips, fp32", TOLERANCE[dtype])


def _of_half(case: Case, inputs: Inputs, right: tuple[Tensor, ...]) -> tuple[float, float]:
    try:
        loss, gradient = differences(dense_eager(case)(inputs), right)
    except (RuntimeError, NotImplementedError):  # torch lacks some operation in this type
        return ROUNDED
    return loss + 1e-5, gradient + 1e-5


def differences(result: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> tuple[float, float]:
    """Largest difference of the loss, relative to it, and of the gradients, relative to their largest entry."""
    loss, *grads = (value.double() for value in result)
    right_loss, *right_grads = (value.double() for value in right)
    apart = float((loss - right_loss).abs() / right_loss.abs())
    gradient = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(grads, right_grads, strict=True)]
    # NaN must not pass for a maximum.
    return apart, torch.tensor(gradient).amax().item()


def compare(
    step: Step, inputs: Inputs, against: Reference, tolerance: tuple[float, float] | None = None
) -> dict[str, Any]:
    """``{"ok", "loss", "gradient", "tolerance", "reference"}`` of one step; a wrong number anywhere makes ok False."""
    loss, gradient = differences(step(inputs), against.result)
    allowed = tolerance or against.tolerance
    ok = loss <= allowed[0] and gradient <= allowed[1]
    return {"ok": ok, "loss": loss, "gradient": gradient, "tolerance": list(allowed), "reference": against.made_by}
