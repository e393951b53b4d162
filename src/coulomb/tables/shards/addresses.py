"""Addresses of shards: braces, patterns and URLs are expanded to one address per shard."""

import glob
import itertools
import re
from pathlib import PurePosixPath

from coulomb.ground.errors import InputError
from coulomb.ground.text import natural_key, visible
from coulomb.tables.shards.remote import forget_listings, list_matches, scheme

MOST_SHARDS = 100_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def names_shards(text: str) -> bool:
    """Returns True if ``text`` is a URL, contains braces, or ends in ``.tar``."""
    return scheme(text) is not None or _BRACES.search(text) is not None or text.lower().endswith(".tar")


def expand_braces(text: str) -> list[str]:
    """Expands ``{0000..0999}`` and ``{a,b}``; several braces give all combinations.

    >>> expand_braces("{a,b}-{08..10}.tar")
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar', 'b-09.tar', 'b-10.tar']

    Raises:
        InputError: a range is reversed, braces are unbalanced or empty, or there are more than 100,000 shards.
    """
    pieces = _BRACES.split(text)
    choices: list[list[str]] = []
    count = 1
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            if "{" in piece or "}" in piece:
                raise InputError(f"data={visible(text)!r}: braces do not match; write {{0000..0999}} or {{a,b}}")
            choices.append([piece])
            continue
        match = _RANGE.fullmatch(piece)
        if match is not None:
            first, last = int(match[1]), int(match[2])
            amount = last - first + 1
        else:
            amount = piece.count(",") + 1
        count *= amount
        if amount < 1 or not piece or (match is None and amount < 2):
            raise InputError(
                f"data={visible(text)!r}: {{{visible(piece)}}} is not a range or a list; write {{0000..0999}} or {{a,b}}"
            )
        if count > MOST_SHARDS:
            raise InputError(
                f"data={visible(text)!r}: names more than {MOST_SHARDS} shards; join small shards into larger ones"
            )
        if match is not None:
            width = len(match[1])
            choices.append([f"{value:0{width}d}" for value in range(first, last + 1)])
        else:
            choices.append(piece.split(","))
    return ["".join(parts) for parts in itertools.product(*choices)]


def expand(text: str) -> list[str]:
    """Returns the addresses of all shards, without duplicates; patterns with ``*`` in natural order.

    Raises:
        InputError: no file matches a pattern, or the pattern cannot be listed (``*`` in an https address).
    """
    addresses: list[str] = []
    expanded = expand_braces(text)
    for address in {scheme(each): each for each in expanded}.values():
        if scheme(address) is not None:
            forget_listings(address, everything=True)
    for each in expanded:
        kind = scheme(each)
        if "*" not in each:
            addresses.append(each)
            continue
        if kind in ("http", "https"):
            raise InputError(
                f"data={visible(text)!r}: a web server cannot be listed; write the shards as {{0000..0999}}"
            )
        if kind is None:
            matches = glob.glob(each, recursive=False)  # noqa: PTH207  the pattern may be absolute
        else:
            matches = list_matches(each)
        if not matches:
            raise InputError(f"{visible(each)}: no file matches this pattern")
        addresses += sorted(matches, key=natural_key)
    if len(set(addresses)) < len(addresses):
        raise InputError(f"data={visible(text)!r}: names a shard twice; name each once")
    return addresses


def short_names(addresses: list[str]) -> list[str]:
    """Returns the names of shards without the folders that they all share: ``train-0000.tar``, or ``a/0.tar``, ``b/0.tar``."""
    paths = [PurePosixPath(address.split("?", 1)[0].replace("://", "/")).parts for address in addresses]
    shared = min(len(path) for path in paths) - 1
    while shared and len({path[:shared] for path in paths}) > 1:
        shared -= 1
    return ["/".join(path[shared:]) for path in paths]
