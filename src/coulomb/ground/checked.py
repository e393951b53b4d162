"""Checks of arguments: numbers, tensors, norms of rows, options. Errors name the argument, warnings count rows."""

import functools
import math
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from coulomb.ground.errors import CoulombWarning, InputError, did_you_mean

Check = Callable[[str, Any], Any]  # (name, value) → the value to use; raises TypeError or ValueError

# Largest norm of rows that are not normalized: their products then leave a factor of 2¹⁶ for 1/τ and sums over rows.
LONGEST = {dtype: math.sqrt(torch.finfo(dtype).max) / 2**8 for dtype in (torch.float32, torch.float64)}
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)  # dtypes of labels
UNKNOWN = -1  # a label or id that is not known, which equals no other
ZERO = 1e-12  # rows of smaller norm are zero vectors
# Frames that warnings skip, so that they point at the user's line: this package, and torch, whose modules call it.
OURS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))


def abstract(value: Tensor) -> bool:
    """Returns True for a meta or fake tensor, which has a shape but no values."""
    return value.is_meta or (type(value) is not Tensor and isinstance(value, FakeTensor))


def capturing(value: Tensor) -> bool:
    """Returns True while a CUDA graph is captured, when no value of a tensor on a GPU can be read."""
    return value.is_cuda and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def readable(value: Tensor) -> bool:
    """Returns True if Python can read the values: not while compiling or `capturing`, not `abstract`, not under vmap."""
    if torch.compiler.is_compiling() or capturing(value):
        return False
    if torch._C._are_functorch_transforms_active():
        while torch._C._functorch.is_functorch_wrapped_tensor(value):
            if torch._C._functorch.is_batchedtensor(value):
                return False
            value = torch._C._functorch.get_unwrapped(value)
    return not abstract(value)


def transformed() -> bool:
    """True under a transform of torch.func outside of a compiled graph, where only plain operators may be used."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def eager() -> bool:
    """True neither in a compiled graph nor under a transform of torch.func: autograd functions may be used."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def warn(text: str) -> None:
    """Issues a `CoulombWarning` that points at the line of the user's code."""
    level = 2
    if not torch.compiler.is_compiling():
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame, level = frame.f_back, level + 1
    warnings.warn(text, CoulombWarning, stacklevel=level)


def unboxed(value: Any) -> Any:
    """Returns the Python number of a 0-dim tensor without gradient, a 0-dim array or a NumPy scalar; others unchanged."""
    if isinstance(value, Tensor) and (value.requires_grad or not readable(value)):
        return value
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def checked_number(
    name: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> float:
    """Returns a finite number in [at_least, below) and above ``above``; else raises an error that names the argument."""
    given, value = value, unboxed(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        remark = " that requires a gradient" if isinstance(given, Tensor) and given.requires_grad else ""
        raise TypeError(f"{name} must be a number, got {type(given).__name__}{remark}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number too large for a float") from None
    if not (math.isfinite(number) and above < number < below and at_least <= number):
        bounds = (("at least", at_least, -math.inf), ("above", above, -math.inf), ("below", below, math.inf))
        allowed = [f"{word} {bound:g}" for word, bound, none in bounds if bound != none]
        raise ValueError(f"{name} must be {' and '.join(['finite', *allowed])}, got {value}")
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Returns True or False; else raises an error that names the argument."""
    value = unboxed(value)
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def checked_whole(name: str, value: Any, *, at_least: int = 1) -> int:
    """Returns an integer of at least ``at_least`` and below 2^63; else raises an error that names the argument."""
    value = unboxed(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2^63, got a larger number")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return value


def checked_share(name: str, value: Any) -> float:
    """Returns a number in [0, 1]; else raises an error that names the argument."""
    value = unboxed(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {value}")
    return float(value)


def number(*, at_least: float = -math.inf, above: float = -math.inf, below: float = math.inf) -> Check:
    """Returns a check that an option is a finite number within these limits."""
    return functools.partial(checked_number, at_least=at_least, above=above, below=below)


def choice(*choices: str) -> Check:
    """Returns a check that an option is one of ``choices``."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        return value

    return check


def optional(check: Check) -> Check:
    """Returns ``check`` extended to accept None."""
    return lambda name, value: None if value is None else check(name, value)


def checked_norms(norm: Tensor, names: tuple[str, ...], normalize: bool, effect: str, below: float = math.inf) -> bool:
    """Checks the norms of rows. Returns True and issues a `CoulombWarning` if there are zero vectors.

    Args:
        norm: norms of the rows of the arguments, one argument after the other, with the same number of rows each.
        names: names of the arguments.
        normalize: whether rows are normalized; if not, zero vectors are not reported.
        effect: end of the warning, after "no direction".
        below: upper limit of all norms.

    Raises:
        ValueError: rows have NaN, infinite or too large values.
    """
    if norm.numel() == 0 or abstract(norm) or capturing(norm):
        return False
    shortest, longest = norm.aminmax()
    if not float(longest) < below:  # also true for NaN
        bad = [int((~(part < below)).sum()) for part in norm.chunk(len(names))]
        name, count = next((name, count) for name, count in zip(names, bad, strict=True) if count)
        raise ValueError(
            f"{name} has {count} of {norm.numel() // len(names)} rows with NaN, infinite or too large values"
        )
    if not normalize or float(shortest) >= ZERO:
        return False
    for name, part in zip(names, norm.chunk(len(names)), strict=True):
        zero = int((part < ZERO).sum())
        if zero:
            warn(f"{zero} of {part.numel()} rows of {name} are zero vectors: no direction{effect}")
    return True


def check_shape(
    name: str, value: Tensor, *, ndim: tuple[int, ...] = (2,), like: Tensor | None = None, least: int = 1
) -> None:
    """Raises unless ``value`` is a dense floating tensor with ``ndim`` dimensions and the device and width of ``like``.

    ``least``: minimum number of samples.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating tensor, got {getattr(value, 'dtype', type(value).__name__)}")
    check_dense(name, value)
    if value.ndim not in ndim:
        raise ValueError(f"{name} must have {' or '.join(map(str, ndim))} dimensions, got shape {tuple(value.shape)}")
    if value.shape[-1] == 0:
        raise ValueError(f"{name} has no dimensions: shape {tuple(value.shape)}")
    if len(value) < least:
        raise ValueError(f"{name} is an empty batch: shape {tuple(value.shape)}")
    if like is not None and value.device != like.device:
        raise ValueError(f"{name} is on {value.device}, but the other features are on {like.device}")
    if like is not None and value.shape[-1] != like.shape[-1]:
        raise ValueError(f"{name} has {value.shape[-1]} dimensions, but the other features have {like.shape[-1]}")


def check_dense(name: str, value: Tensor) -> None:
    """Raises TypeError for sparse and other tensors that are not strided."""
    if value.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got {value.layout}; use {name}.to_dense()")


KINDS: Mapping[str, Callable[[Tensor], bool]] = {
    "a floating": lambda value: value.is_floating_point(),
    "an integer": lambda value: value.dtype in INTEGERS,
    "a boolean or real": lambda value: not value.is_complex(),
    "a real": lambda value: not value.is_complex() and value.dtype != torch.bool,
}


def check_tensor(name: str, value: Any, kind: str, shape: tuple[int, ...], like: Tensor, remark: str = "") -> None:
    """Raises unless ``value`` is a dense tensor of one of the `KINDS`, of ``shape``, and on the device of ``like``."""
    if not isinstance(value, Tensor) or not KINDS[kind](value):
        raise TypeError(f"{name} must be {kind} tensor, got {getattr(value, 'dtype', type(value).__name__)}")
    check_dense(name, value)
    if value.shape != shape:
        raise ValueError(f"{name} must have shape {list(shape)}{remark}, got {tuple(value.shape)}")
    if value.device != like.device:
        raise ValueError(f"{name} is on {value.device}, but the features are on {like.device}")


def require_option(
    name: str,
    value: Any,
    hint: Any,
    *,
    choices: Sequence[str] | None = None,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Raises `InputError`, "name=value: what is wrong", unless an option has the type ``hint``, a choice, and these limits.

    The limits are for numbers; a value of another type that ``hint`` allows, such as None, passes.
    """
    problem = type_mismatch(value, hint)
    if problem is None and choices is not None and value is not None and value not in choices:
        problem = f"must be one of {', '.join(choices)}"
        if isinstance(value, str):
            problem += did_you_mean(value, choices)
    if problem is None and isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            problem = "must be a finite number"
        elif not (at_least <= value <= at_most and above < value < below):
            limits = (("at least", at_least), ("above", above), ("at most", at_most), ("below", below))
            problem = "must be " + " and ".join(
                f"{word} {_plain(limit)}" for word, limit in limits if abs(limit) < math.inf
            )
    if problem is not None:
        raise InputError(f"{name}={value!r}: {problem}")


def _plain(limit: float) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def type_mismatch(value: Any, hint: Any) -> str | None:
    """Returns "expected int or none" or the like if ``value`` is not of the type ``hint``, else None.

    Only plain types, lists and dictionaries are compared. An int is accepted for a float; a bool is not a number.
    """
    hints = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(typing.get_origin(kind) or kind for kind in hints)
    if not all(kind in (type(None), bool, int, float, str, list, dict) for kind in kinds):
        return None
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return None
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return None
    return "expected " + " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
