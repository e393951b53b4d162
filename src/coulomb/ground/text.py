"""Names for display: file and class names are untrusted text."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Sequence

# File and class names are untrusted text: stored unchanged, and made harmless where they are displayed.
# Control, format (bidi overrides too), surrogates, line and paragraph separators: invisible or able to move the cursor.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_DIGITS = re.compile(r"([0-9]+)")
LONGEST_NAME = 120  # bytes of a file name that stands for a longer one; file systems take 255


def visible(text: object, limit: int = 200) -> str:
    """Returns ``text`` for one line of a terminal or log: control characters escaped, long text cut with an ellipsis."""
    shown = "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _HIDDEN else char for char in str(text)
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def first_few(names: Sequence[object], most: int = 5) -> str:
    """Returns at most ``most`` of ``names`` in one line: ``a, b, c and 7 more``."""
    listed = ", ".join(visible(name, 80) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def natural_key(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that puts ``img2`` before ``img10``. Ties are broken by the name itself, so the order is total."""
    parts = [
        (0, int(part), "") if part[0].isdigit() and part.isascii() else (1, 0, part.casefold())
        for part in _DIGITS.split(text)
        if part
    ]
    return parts, text


def portable(name: str) -> str:
    """Returns a file name as valid Unicode: bytes that are not UTF-8 become ``\\xNN``, so it can be written anywhere."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def safe_name(name: str) -> str:
    """Returns ``name`` with only letters, digits and ``-_.``, for a file or folder; a long name is cut, with a hash of it."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.") or "data"
    if len(safe.encode()) <= LONGEST_NAME:
        return safe
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{safe.encode()[: LONGEST_NAME - 13].decode(errors='ignore')}-{digest}"
