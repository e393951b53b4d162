"""Matrix products that autocast does not round, neither in the forward pass nor in the backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.similarity.problem import full_precision


def matmul(first: Tensor, second: Tensor) -> Tensor:
    """first @ second, for two matrices or two equal batches of them.

    torch's own operators are rounded in a backward pass that runs inside autocast, even where autocast was off in the
    forward pass. Where it is on, the product is therefore an autograd function that turns it off in both passes.
    """
    if not _autocasting(first):
        return first @ second
    out: Tensor = MatMul.apply(first, second)
    return out


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """rows @ weightᵀ + bias."""
    if not _autocasting(rows):
        return functional.linear(rows, weight, bias)
    out = matmul(rows, weight.T)
    return out if bias is None else out + bias


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
        parts = []
        if first_tangent is not None:
            parts.append(matmul(first_tangent, second))
        if second_tangent is not None:
            parts.append(matmul(first, second_tangent))
        return sum(parts[1:], parts[0]) if parts else None
