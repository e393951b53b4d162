"""Rows of unit length, checked: the first thing that every loss does with its features."""

import math
from typing import Any

import torch
from torch import Tensor

from coulomb import checked
from coulomb.checked import LONGEST, ZERO, abstract, readable

UNIT = {torch.float32: 1e-6, torch.float64: 1e-14}  # as far from 1 as rounding takes a row that was normalised


def rows_of(
    names: tuple[str, ...], value: Tensor, *, normalize: bool, fresh: bool = False, products: bool = True
) -> Tensor:
    """``value`` in fp32 or wider, its rows (last dimension) of unit length if ``normalize``.

    ``names``: of the arguments whose rows these are, equally many of each, one argument after the other. A row of zeros
    stays zero, gets no gradient, and is counted in a warning; NaN and infinite rows are an error. In a compiled graph the
    checks run too, by an operator of their own; elsewhere only where the values are `readable`.
    ``fresh``: nobody else has ``value``, so that it may be overwritten. ``products``: rows that are not normalised must be
    short enough for products of two of them (`LONGEST`).
    """
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    below = LONGEST[value.dtype] if products and not normalize else math.inf
    if torch.compiler.is_compiling():
        norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
        norm = torch.ops.coulomb.checked_norms(norm, " ".join(names), normalize, below)
        return value / norm.masked_fill(norm < ZERO, torch.inf) if normalize else value
    if torch._C._are_functorch_transforms_active() or abstract(value):
        norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
        if readable(norm):
            check_norms(norm.detach(), names, normalize, below)
        return value / norm.masked_fill(norm < ZERO, torch.inf) if normalize else value
    if not normalize:
        check_norms(torch.linalg.vector_norm(value.detach(), dim=-1), names, normalize, below)
        return value
    if not value.requires_grad:  # a queue or a bank holds unit rows already: do not write them once more
        norm = torch.linalg.vector_norm(value, dim=-1)
        if norm.numel():
            shortest, longest = (float(one) for one in norm.aminmax())
            if 1 - UNIT[value.dtype] <= shortest and longest <= 1 + UNIT[value.dtype]:
                return value
    rows: Tensor = UnitRows.apply(value, names, fresh)[0]
    return rows


def lengths_of(name: str, value: Tensor) -> Tensor:
    """‖row‖ along the last dimension, kept, to divide products by instead of writing unit rows; ∞ for a row of zeros.

    ``value`` is fp32 or wider; the checks and warnings of `rows_of`.
    """
    norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
    if torch.compiler.is_compiling():
        norm = torch.ops.coulomb.checked_norms(norm, name, True, math.inf)
    elif torch._C._are_functorch_transforms_active() or abstract(value):
        if readable(norm):
            check_norms(norm.detach(), (name,), True)
        return norm.masked_fill(norm < ZERO, torch.inf)
    elif not check_norms(norm.detach(), (name,), True):
        return norm
    return norm.masked_fill(norm < ZERO, torch.inf)


class UnitRows(torch.autograd.Function):
    """z = x/‖x‖ with ∂L/∂x = (g − z (z·g))/‖x‖; keeps z and the lengths, not x."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, names: tuple[str, ...], fresh: bool) -> tuple[Tensor, Tensor]:
        """(z, in ``value`` if ``fresh``; ‖x‖ with ∞ for a row of zeros)."""
        norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
        if check_norms(norm, names, True):
            norm = norm.masked_fill_(norm < ZERO, torch.inf)
        rows = value.div_(norm) if fresh else value / norm
        if fresh:
            ctx.mark_dirty(value)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, norm)  # outputs, so that the derivative can be differentiated again
        return rows, norm

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_norm: Tensor | None) -> tuple[Tensor | None, None, None]:
        """Gradient for the rows."""
        rows, norm = ctx.saved_tensors
        out: Tensor | None = None
        if grad is not None:
            along = (rows * grad).sum(-1, keepdim=True)
            out = torch.addcmul(grad, rows, along, value=-1)
            out = out.div(norm) if torch.is_grad_enabled() else out.div_(norm)
        if grad_norm is not None:
            out = rows * grad_norm if out is None else out + rows * grad_norm
        return out, None, None


def check_norms(norm: Tensor, names: tuple[str, ...], normalize: bool, below: float = math.inf) -> bool:
    """`checked_norms` of a loss's features."""
    return checked.checked_norms(norm, names, normalize, ", no gradient", below)


@torch.library.custom_op("coulomb::checked_norms", mutates_args=())
def checked_norms(norm: Tensor, names: str, normalize: bool, below: float) -> Tensor:
    """`check_norms` as an operator, whose result is the norms."""
    check_norms(norm, tuple(names.split()), normalize, below)
    return norm.clone()


@checked_norms.register_fake
def _(norm: Tensor, names: str, normalize: bool, below: float) -> Tensor:
    return torch.empty_like(norm)


checked_norms.register_autograd(lambda ctx, grad: (grad, None, None, None))
