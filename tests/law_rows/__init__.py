"""One row for each way to call each exported loss: how to make it, its inputs, its formula as a double loop over numbers.

A new loss joins the laws of tests/losses/test_laws.py by a module here with a dict ROWS: {"NameLoss …": Row(…)}.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Row:
    make: Callable[..., torch.nn.Module]  # (temperature, reduction=…) → loss; one without a temperature ignores it
    inputs: Callable[..., Tensors]  # (n, d, draw) → arguments; draw(*shape) gives normal numbers
    loop: Callable[..., torch.Tensor]  # (τ, *arguments) → the loss of each anchor, which the loss averages or sums
    constant: Callable[[int], float] | None = None  # its value at τ = .2 when all n samples' features are equal
    paired: bool = True  # are all tensors' first dimensions samples (False: only the first two)
    temperature: bool = True  # has it one?
    mean: Callable[[torch.Tensor], torch.Tensor] = torch.mean  # how "mean" reduces what `loop` returns
    gradgrad: bool = True  # is it twice differentiable (almost everywhere)?
    engine: bool = True  # does it fold a Similarity (so that there are three ways to compute it)?
    normalizes: bool = True  # scales rows of the first argument to unit length: zero vectors are counted in a warning
    shuffle: Callable[[Tensors, torch.Tensor], Tensors] | None = None  # (arguments, order) → the same samples reordered
    sharp: bool = False  # is it 0 at best, where it keeps its digits?
    crowd: Callable[..., Tensors] | None = None  # (draw) → two anchors with 65,536 negatives
    crowded: Callable[..., torch.Tensor] | None = None  # the formula for them, without a loop


def shuffled(row: Row, inputs: Tensors, order: torch.Tensor) -> Tensors:
    """The same samples in another order: labels, weights and masks go along."""
    if row.shuffle is not None:
        return row.shuffle(inputs, order)
    out = [t[order] if row.paired or i < 2 else t for i, t in enumerate(inputs)]
    return tuple(t[:, order] if t.dtype == torch.bool and t.ndim == 2 else t for t in out)


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def log_sum_exp(values):
    return torch.logsumexp(torch.stack(values), 0)


def all_rows() -> dict[str, Row]:
    """The rows of every module in this folder."""
    rows: dict[str, Row] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        new = importlib.import_module(f"{__name__}.{module}").ROWS
        assert not set(new) & set(rows)
        rows |= new
    return rows
