"""What a document must hold, entry by entry, and the sentence for one that does not."""

import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from coulomb.errors import InputError
from coulomb.reading.files import RESTORE


class Shape(NamedTuple):
    """A kind of value: its description for messages, and the test for it."""

    wanted: str
    fits: Callable[[Any], bool]


whole = Shape("a whole number of at least 0", lambda value: type(value) is int and value >= 0)
number = Shape("a number", lambda value: type(value) in (int, float))
text = Shape("text", lambda value: isinstance(value, str))
table = Shape("an object", lambda value: isinstance(value, dict))


def list_of(each: Shape) -> Shape:
    """A list whose items all fit ``each``."""
    return Shape(
        f"a list, each item {each.wanted}", lambda value: isinstance(value, list) and all(map(each.fits, value))
    )


def maybe(each: Shape) -> Shape:
    """``each`` or null; the entry may also be missing."""
    return Shape(f"{each.wanted} or null", lambda value: value is None or each.fits(value))


def check_shape(path: Path | str, value: Any, entries: Mapping[str, Shape], remedy: str = RESTORE) -> dict[str, Any]:
    """Returns ``value`` if it is an object whose ``entries`` fit; other entries are not checked.

    Raises:
        InputError: it is not; the message names ``path``, the entry, its value and ``remedy``.
    """
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds {reprlib.repr(value)} instead of a JSON object; {remedy}")
    for name, shape in entries.items():
        if not shape.fits(value.get(name)):
            found = reprlib.repr(value[name]) if name in value else "missing"
            raise InputError(f"{path}: {name!r} is {found}, but must be {shape.wanted}; {remedy}")
    return value
