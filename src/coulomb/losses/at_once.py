"""A small batch's loss and its gradients at once, before anybody asks for them, as one operation of autograd.

A small problem takes as long as its operations are many, and autograd alone doubles them. So where S has few elements
(`coulomb.similarity.matrix.DENSE_ELEMENTS`) a loss writes out its value and its derivative in as few plain operations as
it can; its streamed form stays what it is compared with, and what a second derivative is made of.

Everything is in powers of two: t = s·log2(e). What else is fast for torch on a CPU: exp2 (a quarter of exp's time), comparing
into floats instead of booleans (a tenth), adding a large negative number instead of filling masked places (a tenth).
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.checked import LONGEST, ZERO, abstract, checked_norms
from coulomb.errors import CoulombWarning
from coulomb.similarity import matrix, use_backend
from coulomb.similarity.graph import aliased
from coulomb.similarity.problem import LOG2E, SAFE_EXPONENT, UNIT, eager, full_precision
from coulomb.similarity.products import product

HIDDEN = -1e30  # added to a t that does not count: finite, so that 0 times it is 0
LN2 = 1 / LOG2E
EXACT = 2**24  # whole numbers below this are exact in fp32

Gradients = Sequence[Tensor | None]
Found = tuple[Tensor, Gradients]  # the loss, and the gradient of each input


def fits(rows: int, columns: int, like: Tensor, *, reduction: str = "mean", plainly: bool = True) -> bool:
    """May S [rows, columns] be stored, and is one number wanted of values that are at hand, by nothing but autograd?

    ``plainly``: whatever else must be so, of the loss's own options.
    """
    return (
        plainly
        and eager()
        and reduction != "none"
        and 0 < rows * columns <= matrix.DENSE_ELEMENTS
        and matrix.chosen_backend() == "auto"
        and not abstract(like)
    )


def known(find: Callable[[bool], Found], again: Callable[..., Any], *inputs: Tensor | float | None) -> Tensor:
    """The loss that ``find`` finds, with its gradients for ``inputs``.

    ``find(learning)``: without gradients if not ``learning``. ``again(*inputs)``: the same loss, differentiable any number
    of times where the dense backend is used.
    """
    loss = attempted(find, again, *inputs)
    assert loss is not None
    return loss


def attempted(
    find: Callable[[bool], Found | None], again: Callable[..., Any], *inputs: Tensor | float | None
) -> Tensor | None:
    """`known` of a ``find`` that may find none."""
    learning = torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in inputs)
    assert isinstance(inputs[0], Tensor)
    with torch.no_grad(), full_precision(inputs[0]):
        found = find(learning)
    if found is None or not learning:
        return None if found is None else found[0]
    loss: Tensor = Known.apply(found, again, *inputs)
    return loss


class Known(torch.autograd.Function):
    """A value whose gradients are known."""

    @staticmethod
    def forward(ctx: Any, found: Found, again: Callable[..., Any], *inputs: Tensor | float | None) -> Tensor:
        """The value."""
        loss, ctx.gradients = found
        ctx.again = again
        ctx.given = [None if isinstance(value, Tensor) else value for value in inputs]
        ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in inputs))
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The known gradients times ``grad``; for a second derivative, those of the loss done once more."""
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *_differentiable(ctx, wanted, grad)
        found = zip(ctx.gradients, wanted, strict=True)
        return None, None, *(one * grad if want and one is not None else None for one, want in found)


def _differentiable(ctx: Any, wanted: Sequence[bool], grad: Tensor) -> list[Tensor | None]:
    saved = zip(ctx.saved_tensors, ctx.given, strict=True)
    inputs = [aliased(given if tensor is None else tensor) for tensor, given in saved]
    with use_backend("dense"), warnings.catch_warnings():
        warnings.simplefilter("ignore", CoulombWarning)  # they were counted in the forward pass
        loss = ctx.again(*inputs)
    asked = [value for value, want in zip(inputs, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(loss, asked, grad, create_graph=True, allow_unused=True))
    return [next(found) if want else None for want in wanted]


class Rows:
    """Rows of one or several arguments, one argument after the other, of unit length, and the way back.

    Attributes:
        unit: z = x/‖x‖, fp32 or wider; x itself if not ``normalize``.
        norm: ‖x‖ [N, 1]; ∞ for a row of zeros. Not known if not ``normalize``: then `within_range` looks at t.
    """

    def __init__(self, names: tuple[str, ...], given: Sequence[Tensor], *, normalize: bool) -> None:
        self.names, self.given, self.normalize = names, given, normalize
        value = given[0] if len(given) == 1 else torch.cat([*given])
        self.unit = value = value.to(torch.promote_types(value.dtype, torch.float32))
        if normalize:
            self.norm = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
            if checked_norms(self.norm, names, True, ", no gradient"):
                self.norm.masked_fill_(self.norm < ZERO, torch.inf)
            self.unit = value / self.norm

    def check(self) -> None:
        """Error for what is not finite, naming the argument."""
        norm = torch.linalg.vector_norm(self.unit, dim=-1)
        checked_norms(norm, self.names, False, "", LONGEST[norm.dtype])

    def back(self, grad: Tensor, factor: float | Tensor) -> list[Tensor]:
        """Gradient of each argument from that of the unit rows, times ``factor``; ``grad`` is changed."""
        if not self.normalize:
            grad = grad if isinstance(factor, float) and factor == 1 else grad.mul_(factor)
        else:
            along = (self.unit * grad).sum(-1, keepdim=True)
            grad.addcmul_(self.unit, along, value=-1).div_(self.norm / factor)
        start, out = 0, []
        for one in self.given:
            part = grad if len(one) == len(grad) else grad[start : start + len(one)]
            out.append(part if part.dtype == one.dtype else part.to(one.dtype))
            start += len(one)
        return out


def exponents(queries_ND: Tensor, keys_MD: Tensor, scale: float | Tensor) -> Tensor:
    """t = log2(e)·scale·Q·Kᵀ [N, M]."""
    return product(queries_ND * (scale * LOG2E), keys_MD)


def numbers(labels: Tensor) -> bool:
    """Are all labels known, and so small that a float can stand for them?"""
    low, high = labels.aminmax()
    return int(low) >= 0 and int(high) < EXACT


def same(labels_N: Tensor, labels_M: Tensor, dtype: torch.dtype) -> Tensor:
    """1.0 where labels are equal, else 0.0, [N, M], in fp32 or wider; the labels are `numbers`."""
    dtype = torch.promote_types(dtype, torch.float32)
    first, second = labels_N.to(dtype)[:, None], labels_M.to(dtype)
    return torch.eq(first, second, out=second.new_empty(len(first), len(second)))


def own_of_views_(t: Tensor) -> Tensor:
    """t⁺ of n pairs [n], of t [2n, 2n] of all view 0, then all view 1; a view with itself and its pair are hidden in t."""
    n = len(t) // 2
    own = t.diagonal(n).clone()
    t.view(2, n, 2, n).diagonal(dim1=1, dim2=3).fill_(HIDDEN)
    return own


def pull_views_(gradient: Tensor, pull: Tensor) -> None:
    """Into the places that `own_of_views_` hid: minus the pull of both anchors [2, n] on their pair."""
    both = pull.sum(0).neg_()
    gradient.diagonal(len(both)).copy_(both)
    gradient.diagonal(-len(both)).copy_(both)


def within(dtype: torch.dtype, scale: float | Tensor, power: float = 1.0) -> bool:
    """Can 2^(power·t) of unit rows leave the range of its type in neither direction, so that no maximum is needed?"""
    if isinstance(scale, Tensor):
        scale = float(scale.detach())
    return power * abs(scale) * UNIT * LOG2E <= SAFE_EXPONENT[torch.promote_types(dtype, torch.float32)]


def within_range(t: Tensor, scale: float | Tensor, *rows: Rows) -> bool:
    """`within` of t, which is looked at if the rows are not of unit length."""
    if all(one.normalize for one in rows):
        return within(t.dtype, scale)
    low, high = t.aminmax()
    largest = max(-float(low), float(high))
    if not largest <= torch.finfo(t.dtype).max / 2**16:
        for one in rows:
            one.check()
    return largest <= SAFE_EXPONENT[t.dtype]


def softmax_(t_NM: Tensor, *, within: bool, counts_NM: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Σ_j 2^(t_ij − m_i) and ln Σ_j 2^t_ij, [N]; t becomes those exponentials. m = 0 if ``within`` the range.

    ``counts``: 1 where a t counts, 0 where not; None: all do. Each row must hold one, and its largest.
    """
    largest = None if within else t_NM.amax(1, keepdim=True)
    exponential = (t_NM if largest is None else t_NM.sub_(largest)).exp2_()
    total = (exponential if counts_NM is None else exponential.mul_(counts_NM)).sum(1)
    return total, total.log() if largest is None else total.log().add_(largest.squeeze(1), alpha=LN2)


def pulled(lse: Tensor, own: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """Mean or sum of log(1 + e^(lse − ln 2·own)); and each one's derivative by lse, which is minus that by ln 2·own."""
    margin = torch.sub(lse, own, alpha=LN2)
    losses = softplus(margin, threshold=50)
    return losses.mean() if reduction == "mean" else losses.sum(), margin.sigmoid_()


def weighted_(exponential_NM: Tensor, weight_N: Tensor, *, within: bool) -> Tensor:
    """G + Gᵀ of G_ij = E_ij·w_i, in place where one exponential serves row i and column j alike (``within``)."""
    if within:
        return exponential_NM.mul_(weight_N[:, None] + weight_N)
    gradient = exponential_NM.mul_(weight_N[:, None])
    return gradient + gradient.T


def factor_of(reduction: str, count: int) -> float:
    """What the sum over ``count`` anchors is multiplied by."""
    return 1 / count if reduction == "mean" else 1.0


def alike(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their types, fp32 at least."""
    if first.dtype == second.dtype == torch.float32:
        return first, second
    wide = torch.promote_types(torch.promote_types(first.dtype, second.dtype), torch.float32)
    return first.to(wide), second.to(wide)
