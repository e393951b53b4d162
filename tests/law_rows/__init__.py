"""One row per way to call each exported loss: constructor, inputs, and its formula as a double loop over numbers.

A new loss is tested by tests/losses/test_laws.py if a module here has a dict ROWS: {"NameLoss …": Row(…)}.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Row:
    make: Callable[..., torch.nn.Module]  # (temperature, reduction=…) → loss; a loss without a temperature ignores it
    inputs: Callable[..., Tensors]  # (n, d, draw) → arguments; draw(*shape) returns normal random numbers
    loop: Callable[..., torch.Tensor]  # (τ, *arguments) → the loss of each anchor, before the reduction
    constant: Callable[[int], float] | None = None  # n → its value at τ = 0.2 for constant embeddings
    paired: bool = True  # is the first dimension of all tensors the samples (False: only of the first two)?
    temperature: bool = True  # does it have a temperature?
    mean: Callable[[torch.Tensor], torch.Tensor] = torch.mean  # how "mean" reduces the values of `loop`
    gradgrad: bool = True  # is it twice differentiable (almost everywhere)?
    derivative: bool = True  # is its gradient the derivative of its value (False: it holds back a part, as sg does)?
    engine: bool = True  # does it reduce a Similarity, which has three ways to compute it?
    normalizes: bool = True  # are rows of the first argument scaled to unit length, with a warning for zero vectors?
    shuffle: Callable[[Tensors, torch.Tensor], Tensors] | None = None  # (arguments, order) → the samples in this order
    sharp: bool = False  # is its minimum 0, near which it keeps its precision?
    crowd: Callable[..., Tensors] | None = None  # (draw) → two anchors with 65,536 negatives
    crowded: Callable[..., torch.Tensor] | None = None  # the formula for them, without a loop


def shuffled(row: Row, inputs: Tensors, order: torch.Tensor) -> Tensors:
    """Returns the samples in another order, including labels, weights and masks."""
    if row.shuffle is not None:
        return row.shuffle(inputs, order)
    out = [t[order] if row.paired or i < 2 else t for i, t in enumerate(inputs)]
    return tuple(t[:, order] if t.dtype == torch.bool and t.ndim == 2 else t for t in out)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def log_sum_exp(values):
    return torch.logsumexp(torch.stack(values), 0)


def all_rows() -> dict[str, Row]:
    """Returns the rows of all modules in this folder."""
    rows: dict[str, Row] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        new = importlib.import_module(f"{__name__}.{module}").ROWS
        assert not set(new) & set(rows)
        rows |= new
    return rows
