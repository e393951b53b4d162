"""A loss under test: how it is made, called and evaluated."""

import copy
import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Tensors = tuple[Any, ...]
Draw = Callable[..., Tensor]

N, D = 6, 5  # samples and dimensions of most laws
SIZES = ((1, 2), (2, 2), (2, 3), (3, 3), (4, 3), (4, 5))  # smaller ones, in which a failure is searched for
SEEDS = (0, 1, 2)


def normal(seed: int = 0) -> Draw:
    """Returns a function of a shape that draws normal random numbers in fp64."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Outcome:
    """One evaluation of a loss.

    Attributes:
        value: the loss as a detached scalar; the mean of a loss per sample.
        gradients: by name of the argument or parameter; zeros where autograd returned None.
        missing: names for which autograd returned None.
        warned: messages of the warnings that were issued.
        error: the exception that was raised instead, or None.
        count: number of values that the loss returned.
    """

    value: Tensor
    gradients: dict[str, Tensor] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    warned: tuple[str, ...] = ()
    error: Exception | None = None
    count: int = 1

    @property
    def finite(self) -> bool:
        """True if value and gradients are finite."""
        return bool(torch.isfinite(self.value)) and all(bool(torch.isfinite(g).all()) for g in self.gradients.values())

    @property
    def silent_zero(self) -> bool:
        """True for a value of 0 without any gradient and without a warning."""
        return not self.warned and float(self.value) == 0 and not any(bool(g.any()) for g in self.gradients.values())


@dataclass(frozen=True)
class Subject:
    """A loss under test.

    Attributes:
        name: for messages.
        make: (**options) → a new loss.
        inputs: (n, d, draw) → the arguments of a call, tensors in fp64 and integers; ``draw(*shape)`` returns normal numbers.
        names: the name of each argument.
        keywords: arguments that are passed by keyword.
        options: names of options that ``make`` accepts, with the value that it uses (None: unknown).
        called: how the loss is called, for the output.
        detached: names of arguments that get no gradient on purpose.
        shuffle: (inputs, order) → the samples in another order; None: all dimensions of N, 2N, … samples are reordered.
        split: (inputs, rank, world) → the samples of one process; None: likewise.
        formula: (*inputs) → the value, or the losses of each anchor.
        mean: how the values of ``formula`` become the loss.
        dim: the only number of dimensions that the loss accepts; None: any.
    """

    name: str
    make: Callable[..., Callable[..., Any]]
    inputs: Callable[[int, int, Draw], Tensors]
    names: tuple[str, ...]
    keywords: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    called: str = ""
    detached: frozenset[str] = frozenset()
    shuffle: Callable[[Tensors, Tensor], Sequence[Any]] | None = None
    split: Callable[[Tensors, int, int], Sequence[Any]] | None = None
    formula: Callable[..., Tensor] | None = None
    mean: Callable[[Tensor], Tensor] = torch.mean
    dim: int | None = None

    def draw(self, n: int = N, d: int = D, dtype: torch.dtype | None = None, seed: int = 0) -> Tensors:
        """Returns the arguments of a call."""
        drawn = self.inputs(n, self.dim or d, normal(seed))
        return tuple(one.to(dtype or self.precise) if floating(one) else one for one in drawn)

    @cached_property
    def precise(self) -> torch.dtype:
        """fp64, or fp32 if the loss cannot be called in fp64."""
        inputs = tuple(one.double() if floating(one) else one for one in self.inputs(N, self.dim or D, normal()))
        return torch.float64 if self.evaluate(inputs).error is None else torch.float32

    @cached_property
    def computes_in(self) -> torch.dtype:
        """The precision of the result for inputs in `precise`."""
        return self.evaluate(self.draw()).value.dtype

    @cached_property
    def in_fp32(self) -> bool:
        """True if the loss computes in fp32 at best, so that laws compare with wider bounds."""
        return torch.float32 in (self.precise, self.computes_in)

    def evaluate(
        self,
        inputs: Sequence[Any],
        *,
        loss: Callable[..., Any] | None = None,
        seed: int = 0,
        factor: float = 1.0,
        autocast: bool = False,
        backward: bool = True,
        **options: Any,
    ) -> Outcome:
        """Calls a new loss, made with ``options``, on copies of ``inputs``, and returns the value and all gradients.

        Random numbers are drawn with ``seed``, in PyTorch, NumPy and Python. ``factor`` multiplies the loss before the
        backward pass. An exception is returned, not raised.
        """
        with seeded(seed), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                outcome = self._evaluated(inputs, loss, factor, autocast, backward, options)
            except Exception as error:
                outcome = Outcome(torch.tensor(torch.nan), error=error)
        return Outcome(
            outcome.value,
            outcome.gradients,
            outcome.missing,
            tuple(str(one.message) for one in caught if issubclass(one.category, UserWarning | RuntimeWarning)),
            outcome.error,
            outcome.count,
        )

    def _evaluated(
        self,
        inputs: Sequence[Any],
        loss: Callable[..., Any] | None,
        factor: float,
        autocast: bool,
        backward: bool,
        options: dict[str, Any],
    ) -> Outcome:
        leaves = [one.detach().clone().requires_grad_(backward) if floating(one) else copied(one) for one in inputs]
        wide = max((one.dtype for one in leaves if floating(one)), key=lambda t: t.itemsize, default=torch.float32)
        loss = self.made(wide, **options) if loss is None else loss
        with torch.set_grad_enabled(backward):
            # An embedding is no leaf: a loss may not change a leaf in place, but it can change an embedding.
            given = [one.clone() if floating(one) else one for one in leaves]
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                result = value_of(self.call(loss, given))
            value = result.mean() if result.ndim else result
        wanted = {name: one for name, one in zip(self.names, leaves, strict=True) if floating(one)}
        if isinstance(loss, nn.Module):
            wanted |= {name: p for name, p in loss.named_parameters() if p.requires_grad}
        grads: Sequence[Tensor | None] = [None] * len(wanted)
        if backward and value.requires_grad:
            grads = torch.autograd.grad(value * factor, list(wanted.values()), allow_unused=True)
        found = dict(zip(wanted, grads, strict=True)) if backward else {}
        return Outcome(
            value.detach(),
            {name: torch.zeros_like(wanted[name]) if grad is None else grad for name, grad in found.items()},
            frozenset(name for name, grad in found.items() if grad is None),
            count=result.numel(),
        )

    def made(self, dtype: torch.dtype = torch.float32, **options: Any) -> Callable[..., Any]:
        """Returns a new loss whose parameters are in ``dtype``, or in fp32 for half precision."""
        loss = self.make(**options)
        if isinstance(loss, nn.Module) and dtype.itemsize >= 4:
            loss = loss.to(dtype)
        return loss

    def call(self, loss: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Calls ``loss`` with arguments by position and by keyword."""
        named = dict(zip(self.names, inputs, strict=True))
        by_name = {name: named.pop(name) for name in self.keywords}
        return loss(*named.values(), **by_name)

    # Which dimensions are the samples: those whose size grows with N.

    def sample_dims(self, n: int, inputs: Sequence[Any]) -> list[tuple[int, ...]]:
        """Returns, per argument, the number of blocks of ``n`` samples in each dimension; 0 for any other dimension."""
        more = self.inputs(n + 1, self.dim or D, normal())
        blocks: list[tuple[int, ...]] = []
        for one, other in zip(inputs, more, strict=True):
            if not isinstance(one, Tensor):
                blocks.append(())
                continue
            sizes = zip(one.shape, other.shape, strict=True)
            blocks.append(tuple(a // n if b > a and a % n == 0 and b == a // n * (n + 1) else 0 for a, b in sizes))
        return blocks

    def counts_samples(self, n: int, inputs: Sequence[Any], given: object) -> bool:
        """True if a dimension of the inputs counts samples, or a function that the user has ``given`` divides them."""
        return given is not None or any(map(any, self.sample_dims(n, inputs)))

    def reordered(self, n: int, inputs: Tensors, order: Tensor) -> Sequence[Any]:
        """Returns the samples in another order."""
        if self.shuffle is not None:
            return self.shuffle(inputs, order)
        return self._selected(n, inputs, order)

    def part(self, n: int, inputs: Tensors, rank: int, world: int) -> Sequence[Any]:
        """Returns the samples of one process of ``world``; arguments without samples are the same in all."""
        if self.split is not None:
            return self.split(inputs, rank, world)
        return self._selected(n, inputs, torch.arange(n).tensor_split(world)[rank])

    def _selected(self, n: int, inputs: Tensors, rows: Tensor) -> Sequence[Any]:
        selected = []
        for one, blocks in zip(inputs, self.sample_dims(n, inputs), strict=True):
            part = one
            for place, count in enumerate(blocks):
                if count:
                    part = part.index_select(place, torch.cat([rows + n * block for block in range(count)]))
            selected.append(part)
        return selected


def floating(value: Any) -> bool:
    """True for a tensor of floating point numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()


def copied(value: Any) -> Any:
    """Returns a copy."""
    return value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def value_of(result: Any) -> Tensor:
    """Returns the loss in what a loss returned: a tensor, the sum of a dict's tensors, or the first element of a tuple.

    Raises:
        TypeError: there is no tensor of floating point numbers in it.
    """
    if isinstance(result, dict):
        terms = [one for one in result.values() if floating(one)]
        result = sum(terms[1:], start=terms[0]) if terms else None
    elif isinstance(result, tuple | list) and result:
        result = result[0]
    if not floating(result):
        raise TypeError(f"returns {type(result).__name__}, not a tensor of floating point numbers")
    tensor: Tensor = result
    return tensor.squeeze() if tensor.numel() == 1 else tensor


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds PyTorch, NumPy and Python within this block, and restores their states afterwards."""
    state, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002  # what losses may draw from
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numbers)  # noqa: NPY002


def smallest(fails: Callable[[int, int], str | None], n: int = N, d: int = D) -> str | None:
    """Returns what ``fails`` says for the smallest batch for which it fails, if it fails for ``n`` samples; None if not.

    ``fails(n, d)`` returns a description of the failure, or None.
    """
    whole = fails(n, d)
    if whole is None:
        return None
    for size in SIZES:
        try:
            small = fails(*size)
        except Exception:  # many losses need more samples than one or two
            continue
        if small is not None:
            return small
    return whole


def shown(names: Sequence[str], inputs: Sequence[Any]) -> str:
    """Returns small inputs as text."""
    lines = []
    for name, one in zip(names, inputs, strict=True):
        if isinstance(one, Tensor):
            numbers = one.detach().double().round(decimals=3) if one.is_floating_point() else one
            values = str(numbers.tolist()) if one.numel() <= 24 else f"{list(one.shape)}, drawn with seed 0"
        else:
            values = repr(one)
        lines.append(f"{name} = {values}")
    return "\n".join(lines)


def relative(mine: Tensor, true: Tensor, floor: float = 1e-12) -> float:
    """Returns the largest difference of two tensors relative to the largest number in ``true``."""
    mine, true = mine.detach().double(), true.detach().double()
    if mine.numel() == 0:
        return 0.0
    error = float((mine - true).abs().max() / max(float(true.abs().max()), floor))
    return float("inf") if math.isnan(error) else error


def message(error: BaseException) -> str:
    """Returns type and first line of an exception."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
