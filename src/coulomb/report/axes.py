"""The box of a chart: places in percent from the left and from the top, and round ticks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """A tick at ``place`` percent of the axis, from the left or from the top."""

    place: float
    label: str
    style: str = ""


@dataclass(frozen=True)
class Axis:
    """One side of a chart from ``low`` to ``high``, logarithmic on wish; ``turned``: upwards, counted from the top."""

    low: float
    high: float
    log: bool = False
    turned: bool = False

    def place(self, value: float) -> float:
        """Percent along the axis; the middle where the axis has no length."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        if high == low:
            return 50.0
        return 100 * (high - at) / (high - low) if self.turned else 100 * (at - low) / (high - low)

    def marks(self, values: Sequence[float], write: Callable[[float], str]) -> list[Tick]:
        """Ticks at ``values``."""
        return [Tick(round(self.place(value), 2), short(write(value))) for value in values]


def ticks(
    low: float,
    high: float,
    *,
    whole: bool = False,
    tight: bool = False,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> list[float]:
    """Round numbers (1, 2, 5 · 10ᵏ) that cover low … high, or with ``tight`` lie within it; about five."""
    if high <= low:
        pad = abs(low) * 0.05 or 0.5
        low, high = max(limits[0], low - (0 if tight else pad)), min(limits[1], high + (0 if tight else pad))
    if high <= low:
        return [low]
    rough = (high - low) / (5 if tight else 4)
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9) if tight else math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if tight else math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)] or [low]


def powers(low: float, high: float) -> list[float]:
    """Powers of ten that cover low … high, both positive; at most about six of them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    step = max(1, math.ceil((last - first) / 5))
    return [10.0**k for k in range(first, last + step, step)]


def short(text: str) -> str:
    """Tick labels without needless decimals: '6.00' → '6', '50.0 %' → '50 %'."""
    number, space, unit = text.partition("\u202f")
    if "." in number and "·" not in number:
        number = number.rstrip("0").rstrip(".")
    return number + space + unit
