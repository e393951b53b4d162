"""What losses ask of the numbers that they are constructed with."""

import math


def checked_number(name: str, value: float, *, at_least: float = -math.inf, below: float = math.inf) -> float:
    """A finite number in [at_least, below); else an error naming the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not (math.isfinite(value) and at_least <= value < below):
        allowed = [f"at least {at_least:g}"] * (at_least > -math.inf) + [f"below {below:g}"] * (below < math.inf)
        raise ValueError(f"{name} must be {' and '.join(['finite', *allowed])}, got {value}")
    return float(value)


def checked_whole(name: str, value: int, *, at_least: int = 1) -> int:
    """A whole number from ``at_least``; else an error naming the argument."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return value
