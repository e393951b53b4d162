"""Which operation produced the first NaN or infinite number."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from coulomb.laws.subject import Subject, floating

HINTS = {
    "exp": "exp overflows; subtract the maximum first, as logsumexp does",
    "log": "the logarithm of 0; use logsumexp or log_softmax instead of log of a sum",
    "div": "a division by 0, such as a mean over no elements or a norm or standard deviation of 0",
    "reciprocal": "a division by 0",
    "mean": "a mean over no elements",
    "sqrt": "the square root of a negative number",
    "pow": "a power of 0 or of a large number",
    "std": "a standard deviation of one value",
    "var": "a variance of one value",
    "mul": "0 times infinity, as in a mask that is multiplied with an infinite value, or a number that is too large",
    "mm": "products that are too large for the precision",
    "matmul": "products that are too large for the precision",
    "sum": "a sum that is too large for the precision",
    "_to_copy": "a number that is too large for the precision that it is converted to",
    "acos": "the arccosine beyond 1, or its derivative at 1",
    "acosh": "the arccosine beyond 1, or its derivative at 1",
    "sub": "infinity minus infinity",
    "masked_fill": "infinite entries in a mask for the whole row",
    "_softmax": "a row without any finite entry",
    "_log_softmax": "a row without any finite entry",
    "logsumexp": "a row without any finite entry",
}
MASKS = ("masked_fill", "fill", "full", "where", "scalar_tensor", "empty", "lift_fresh", "new_full", "zeros", "resize")


class Watching(TorchDispatchMode):
    """Remembers the first operation within this block whose output has NaN or +∞ although its inputs have none."""

    def __init__(self) -> None:
        super().__init__()
        self.first: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the operation and looks at its output."""
        before = func._schema.is_mutable or self.first is not None or clean(args)
        result = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0].rstrip("_")
        if self.first is None and before and not name.startswith(MASKS):
            spoiled = not clean((result,)) or (name.startswith("log") and endless(result) and not endless(*args))
            self.first = name if spoiled else None
        return result


def clean(values: Sequence[Any]) -> bool:
    """True if no tensor in ``values`` has NaN or +∞; −∞ marks what a mask leaves out."""
    flat = [each for one in values for each in (one if isinstance(one, tuple | list) else (one,))]
    return not any(
        isinstance(one, Tensor) and one.is_floating_point() and bool((one.isnan() | (one == torch.inf)).any())
        for one in flat
    )


def endless(*values: Any) -> bool:
    """True if a tensor has −∞, which is no mask if it comes from a logarithm."""
    return any(floating(one) and bool((one == -torch.inf).any()) for one in values)


def origin(subject: Subject, inputs: Sequence[Any], **options: Any) -> str:
    """Returns a sentence on the operation that produced the first NaN or infinite number of a step; empty if unknown."""
    with Watching() as watching:
        forward = subject.evaluate(inputs, backward=False, **options)
    if watching.first is None and bool(torch.isfinite(forward.value)):
        with Watching() as watching:
            subject.evaluate(inputs, **options)
        if watching.first not in (None, "div"):
            return f"in the backward pass, {words(str(watching.first))}"
        return "the backward pass divides by 0, the derivative of a norm or square root at 0"
    return "" if watching.first is None else words(watching.first)


def words(name: str) -> str:
    """Returns the operation with its usual reason."""
    return (
        f"the first such number comes from {name}: {HINTS[name]}"
        if name in HINTS
        else f"the first such number comes from {name}"
    )
