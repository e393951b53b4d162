"""File and class names come from strangers: they are data, and are made harmless only where they are shown."""

import os
import re
import unicodedata
from collections.abc import Sequence

_DIGITS = re.compile(r"([0-9]+)")
# Control, format (bidi overrides too), surrogates, line and paragraph separators: invisible or able to move the cursor.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: object, limit: int = 200) -> str:
    """``text`` for one line of a terminal or a log: control characters as escapes, long names cut with an ellipsis."""
    shown = "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _HIDDEN else char for char in str(text)
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def some(names: Sequence[object], most: int = 5) -> str:
    """The first few of ``names`` in one line: ``a, b, c and 7 more``."""
    listed = ", ".join(visible(name, 80) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def natural_key(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key under which ``img2`` comes before ``img10``; ties are broken by the name itself, so the order is total."""
    parts = [
        (0, int(part), "") if part[0].isdigit() and part.isascii() else (1, 0, part.casefold())
        for part in _DIGITS.split(text)
        if part
    ]
    return parts, text


def portable(name: str) -> str:
    """A file name as valid Unicode: bytes that are not UTF-8 become ``\\xNN``, so that it can be written anywhere."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
