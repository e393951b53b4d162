"""Checks of the inputs of losses, normalization of features, and reductions."""

import math
from typing import Any

import torch
from torch import Tensor

from coulomb.ground import checked
from coulomb.ground.checked import (
    LONGEST,
    UNKNOWN,
    ZERO,
    abstract,
    capturing,
    check_shape,
    check_tensor,
    readable,
    warn,
)
from coulomb.ground.workers import MORE_THAN, alone

UNIT = {torch.float32: 1e-6, torch.float64: 1e-14}  # rounding of the length of a normalized row


def unit_rows(name: str, value: Tensor, *, normalize: bool, like: Tensor | None = None, **options: Any) -> Tensor:
    """Checks ``value`` and returns it in fp32 or fp64, with rows (last dimension) of unit length if ``normalize``.

    A row of zeros stays zero and gets no gradient; a `CoulombWarning` counts such rows. ``options`` go to `check_shape`.

    Raises:
        TypeError, ValueError: not a floating tensor; wrong number of dimensions, no samples, another device or width
            than ``like``; NaN or infinite values (checked by the norms in every call, which on a GPU waits for the device).
    """
    check_shape(name, value, like=like, **options)
    return normalized((name,), value, normalize=normalize)


def paired_rows(names: tuple[str, str], first: Tensor, second: Tensor, *, normalize: bool, degree: int = 2) -> Tensor:
    """Returns two tensors [N, D] of equal shape as one tensor of rows [2N, D], checked and scaled as by `normalized`."""
    check_shape(names[0], first)
    check_shape(names[1], second, like=first)
    if first.shape != second.shape:
        raise ValueError(
            f"{names[1]} has shape {tuple(second.shape)}, but {names[0]} has {tuple(first.shape)}: they must be equal"
        )
    with alone(first):
        both = torch.cat([first, second])
    return normalized(names, both, normalize=normalize, degree=degree)


def paired_products(rows_2ND: Tensor) -> Tensor:
    """Returns x_i · y_i of two tensors [N, D] that are stacked, [N]."""
    if rows_2ND.numel() <= MORE_THAN or not checked.eager() or abstract(rows_2ND):
        first, second = rows_2ND.unbind()  # one gradient, where two indices would have two
        return (first * second).sum(1)
    products: Tensor = PairedProducts.apply(rows_2ND)
    return products


class PairedProducts(torch.autograd.Function):
    """x_i · y_i, with the gradient of both as one tensor, of which autograd would stack two."""

    @staticmethod
    def forward(ctx: Any, rows_2ND: Tensor) -> Tensor:
        """Returns the products."""
        ctx.save_for_backward(rows_2ND)
        with alone(rows_2ND):
            return (rows_2ND[0] * rows_2ND[1]).sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Returns (g·y, g·x)."""
        (rows_2ND,) = ctx.saved_tensors
        with alone(rows_2ND):
            if torch.is_grad_enabled():
                return rows_2ND.flip(0) * grad[:, None]
            out = torch.empty_like(rows_2ND)
            for one, other in ((0, 1), (1, 0)):
                torch.mul(rows_2ND[one], grad[:, None], out=out[other])
            return out


def normalized(names: tuple[str, ...], value: Tensor, *, normalize: bool, degree: int = 2) -> Tensor:
    """Like `unit_rows`, for a tensor whose shape has been checked, with equally many rows of each argument in ``names``.

    ``degree``: rows that are not normalized must be short enough for products of this many of them; 0: of any length.
    """
    value = value.to(torch.promote_types(value.dtype, torch.float32))
    below = LONGEST[value.dtype] ** (2 / degree) if degree and not normalize else math.inf
    plain = torch._C._are_functorch_transforms_active() or abstract(value)
    if normalize and not plain and not torch.compiler.is_compiling():
        if not value.requires_grad and _has_unit_rows(value):  # keys of a queue: do not copy them
            return value
        rows: Tensor = UnitRows.apply(value, names)[0]
        return rows
    if normalize:
        return value / lengths(names, value)
    lengths(names, value.detach(), normalize=False, below=below)
    return value


def lengths(names: tuple[str, ...], value: Tensor, *, normalize: bool = True, below: float = math.inf) -> Tensor:
    """Returns ‖x‖ along the last dimension, kept as a dimension of 1, checked by `check_norms`; ∞ for a row of zeros."""
    norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
    if torch.compiler.is_compiling():
        norm = torch.ops.coulomb.checked_norms(norm, " ".join(names), normalize, below)
    elif readable(norm):
        check_norms(norm.detach(), names, normalize, below)
    return norm.masked_fill(norm < ZERO, torch.inf) if normalize else norm


def _has_unit_rows(value: Tensor) -> bool:
    if value.numel() == 0 or capturing(value):
        return False
    shortest, longest = torch.linalg.vector_norm(value, dim=-1).aminmax()
    return 1 - UNIT[value.dtype] <= float(shortest) and float(longest) <= 1 + UNIT[value.dtype]


class UnitRows(torch.autograd.Function):
    """z = x/‖x‖ with ∂L/∂x = (g − z (z·g))/‖x‖, in half the operations of autograd; saves z and ‖x‖ instead of x."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """Returns (z, ‖x‖ with ∞ for a row of zeros)."""
        with alone(value):
            norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
            if check_norms(norm, names, True) or capturing(norm):
                norm = norm.masked_fill_(norm < ZERO, torch.inf)
            rows = value / norm
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, norm)  # outputs, so that the derivative can be differentiated again
        return rows, norm

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_norm: Tensor | None) -> tuple[Tensor | None, None]:
        """Returns the gradient of ``value``."""
        rows, norm = ctx.saved_tensors
        out: Tensor | None = None
        with alone(rows):
            if grad is not None:
                product = rows * grad
                along = product.sum(-1, keepdim=True)
                if torch.is_grad_enabled():
                    out = (grad - rows * along) / norm
                else:
                    out = torch.sub(grad, torch.mul(rows, along, out=product), out=product).div_(norm)
            if grad_norm is not None:
                out = rows * grad_norm if out is None else out + rows * grad_norm
        return out, None


def check_norms(norm: Tensor, names: tuple[str, ...], normalize: bool, below: float = math.inf) -> bool:
    """Checks the norms of features with `coulomb.ground.checked.checked_norms`."""
    return checked.checked_norms(norm, names, normalize, ", no gradient", below)


@torch.library.custom_op("coulomb::checked_norms", mutates_args=())
def _checked_norms(norm: Tensor, names: str, normalize: bool, below: float) -> Tensor:
    """`check_norms` inside a compiled graph."""
    check_norms(norm, tuple(names.split()), normalize, below)
    return norm.clone()


_checked_norms.register_fake(lambda norm, names, normalize, below: torch.empty_like(norm))
_checked_norms.register_autograd(lambda ctx, grad: (grad, None, None, None))


def class_ids(labels: Tensor, length: int, like: Tensor, *, classes: int | None = None, name: str = "labels") -> Tensor:
    """Checks integer labels [B], −1 for unknown, and returns them as int64; a column [B, 1] is accepted as [B].

    Values are checked only if they are `readable`.

    Raises:
        TypeError, ValueError: not integers, another shape or device, labels below −1 or not below ``classes``.
    """
    labels = flat_labels(labels)
    check_tensor(name, labels, "an integer", (length,), like, ", one per sample")
    if length and readable(labels):
        least, greatest = (int(one) for one in labels.aminmax())
        if least < UNKNOWN:
            raise ValueError(f"{name} must be integers from 0, or −1 for unknown, got {least}")
        if classes is not None and greatest >= classes:
            raise ValueError(f"{name} must be below the number of classes, {classes}, got {greatest}")
    return labels.long()


def pair_ids(name: str, ids: Tensor, length: int, like: Tensor) -> Tensor:
    """Checks integer ids, one per row, [length], or several, [length, C], and returns them as int64; [length, 1] as [length].

    Raises:
        TypeError, ValueError: as `class_ids`.
    """
    ids = flat_labels(ids)
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.shape[1] == 0:
        return class_ids(ids, length, like, name=name)
    check_tensor(name, ids, "an integer", (length, ids.shape[1]), like, f" or [{length}]")
    if length and readable(ids) and int(ids.min()) < UNKNOWN:
        raise ValueError(f"{name} must be integers from 0, or −1 for unknown, got {int(ids.min())}")
    return ids.long()


def flat_labels(labels: Tensor) -> Tensor:
    """Returns labels given as a column [B, 1], as in the authors' code of SupCon, as [B]; anything else unchanged."""
    return labels.squeeze(1) if isinstance(labels, Tensor) and labels.ndim == 2 and labels.shape[1] == 1 else labels


def known_labels(labels: Tensor) -> Tensor | None:
    """Returns a boolean mask [B] of labels from 0; None if all are known. A `CoulombWarning` counts the others."""
    return unless_all(labels != UNKNOWN, "labels are unknown (−1): they are left out of the mean, with a loss of 0")


def unless_all(counted: Tensor, what: str) -> Tensor | None:
    """Returns the boolean mask ``counted`` [N], or None if it is True everywhere.

    If it is `readable`, a `CoulombWarning` counts the other samples, described by ``what``.
    """
    if not readable(counted):
        return counted
    missing = len(counted) - int(counted.sum())
    if missing:
        warn_counted(missing, len(counted), what)
    return counted if missing else None


def warn_counted(count: int, total: int, what: str) -> None:
    """Issues a `CoulombWarning` that begins with "count of total"."""
    warn(f"{count} of {total} {what}")


def reduced(loss_N: Tensor, reduction: str, counted_N: Tensor | None = None) -> Tensor:
    """Returns the mean over the counted samples (None: all; 0 if there are none), their sum, or all values (others: 0)."""
    if counted_N is not None:
        loss_N = loss_N.masked_fill(~counted_N, 0)
    if reduction == "none":
        return loss_N
    if reduction == "sum" or counted_N is not None:
        total = loss_N.sum()
        return total if counted_N is None or reduction == "sum" else total / counted_N.sum().clamp_min(1)
    return loss_N.mean()
