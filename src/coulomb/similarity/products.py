"""Matrix products: of a stored matrix, of tiles (in half precision where that is faster), of losses (exact under autocast)."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from coulomb.ground import machine
from coulomb.similarity import policy

SMALL = 16  # with fewer rows, columns or dimensions oneDNN gains nothing
WORTHWHILE = 2**24  # likewise with fewer multiplications


def gains(dtype: torch.dtype, device: torch.device) -> bool:
    """True if products of operands in this half precision are faster on this machine than in fp32."""
    if device.type == "cpu":
        return dtype == torch.bfloat16 and machine.FAST_BFLOAT16
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def product(a_RD: Tensor, b_CD: Tensor) -> Tensor:
    """A·Bᵀ [R, C] by all threads, by oneDNN where it is faster (`coulomb.ground.machine`), for which A is made contiguous."""
    linear = _linear_for(a_RD, b_CD)
    return torch.mm(a_RD, b_CD.T) if linear is None else linear(a_RD.contiguous(), b_CD, None, "none", [], "")


def _linear_for(a_RD: Tensor, b_CD: Tensor) -> torch._ops.OpOverload | None:
    """oneDNN's kernel, if it is faster for this product."""
    large = min(*a_RD.shape, *b_CD.shape) >= SMALL and len(a_RD) * b_CD.numel() >= WORTHWHILE
    return machine.LINEAR if large and a_RD.dtype == torch.float32 and a_RD.device.type == "cpu" else None


def half_product(a_RD: Tensor, b_CD: Tensor, dtype: torch.dtype) -> Tensor:
    """A·Bᵀ [R, C] in ``dtype`` of operands in half precision."""
    if a_RD.device.type == "cuda":
        return torch.mm(a_RD, b_CD.T, out_dtype=dtype)
    return torch.mm(a_RD, b_CD.T).to(dtype)  # CPUs sum in fp32, but have no result in it


def add_product(out_RD: Tensor, a_RC: Tensor, b_CD: Tensor) -> None:
    """out += A·B."""
    if a_RC.dtype == out_RD.dtype:
        out_RD.addmm_(a_RC, b_CD)
    else:
        out_RD += half_product(a_RC, b_CD.T, out_RD.dtype)


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Autocast off, and TF32 unless `policy` allows it: the operands are already in the precision that they need."""
    kind = like.device.type
    if kind == "cuda":
        return machine.gpu_precision(policy.current().tf32)
    on = kind != "meta" and torch.is_autocast_enabled(kind)  # torch has no autocast for meta tensors
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def matmul(first: Tensor, second: Tensor) -> Tensor:
    """first @ second, for two matrices or two equal batches of them.

    torch's own operators are rounded in a backward pass that runs inside autocast, even where autocast was off in the
    forward pass. Where it is on, the product is therefore an autograd function that turns it off in both passes.
    """
    if not _autocasting(first):
        return first @ second
    out: Tensor = MatMul.apply(first, second)
    return out


def _autocasting(like: Tensor) -> bool:
    kind = like.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind) and not torch.compiler.is_compiling()


class MatMul(torch.autograd.Function):
    """A·B without autocast; its derivatives are such products again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(first: Tensor, second: Tensor) -> Tensor:
        """The product."""
        with full_precision(first):
            return first @ second

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep both operands."""
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """G·Bᵀ and Aᵀ·G."""
        first, second = ctx.saved_tensors
        need_first, need_second = ctx.needs_input_grad
        return matmul(grad, second.mT) if need_first else None, matmul(first.mT, grad) if need_second else None

    @staticmethod
    def jvp(ctx: Any, first_tangent: Tensor | None, second_tangent: Tensor | None) -> Tensor | None:
        """dA·B + A·dB."""
        first, second = ctx.saved_tensors
        pairs = (first_tangent, second), (first, second_tangent)
        parts = [matmul(a, b) for a, b in pairs if a is not None and b is not None]
        return sum(parts[1:], parts[0]) if parts else None
