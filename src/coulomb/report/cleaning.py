"""What strangers wrote — names, numbers — made fit for display."""

import math
import unicodedata
from pathlib import Path
from typing import Any

from coulomb.errors import InputError

TURNING = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # they make a name read as another


def clean(value: Any) -> Any:
    """Strings without lone surrogates, control and direction characters; recursively, keys included."""
    if isinstance(value, str):
        return "".join("\ufffd" if _misleading(character) else character for character in value)
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def _misleading(character: str) -> bool:
    return character in TURNING or (unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t")


def reason(error: InputError, path: Path) -> str:
    """The message of ``error`` without the path that it begins with, as a sentence."""
    return f"{clean(str(error).removeprefix(f'{path}: ').removeprefix(f'{path} '))}."


def finite(value: Any) -> float | None:
    """``value`` as a float, None when it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
