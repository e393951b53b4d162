"""Addresses of shards: braces, patterns and URLs are expanded to one address per shard."""

import glob
import itertools
import re
from pathlib import Path, PurePosixPath

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, natural_key, visible
from coulomb.tables.shards.remote import forget_listings, list_matches, scheme

MOST_SHARDS = 100_000
PARTS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"}  # of a data set
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


def named_shards(text: str) -> list[str]:
    """Returns the addresses of the shards that a URL, braces or names of files stand for, see `expand`.

    Raises:
        InputError: a local file does not exist, or local and remote shards are mixed.
    """
    plain = text.removeprefix("file://") if scheme(text) == "file" else text
    addresses = expand(str(Path(plain).expanduser()) if scheme(plain) is None else plain)
    if is_local(addresses) and (missing := [each for each in addresses if not Path(each).exists()]):
        raise InputError(
            f"{visible(text)}: {len(missing)} of {len(addresses)} shards do not exist: {first_few(short_names(missing))}"
        )
    return addresses


def matching_files(pattern: Path) -> list[Path]:
    """Returns the files of a folder whose names match a pattern such as ``train-*.parquet``, in natural order."""
    matches = (each for each in pattern.parent.glob(pattern.name) if each.is_file())
    return sorted(matches, key=lambda path: natural_key(path.name))


def shard_suffixes(addresses: list[str]) -> set[str]:
    """Returns the endings of the names of shards, without the dot, in lower case."""
    return {address.split("?", 1)[0].rpartition(".")[2].lower() for address in addresses}


def is_local(addresses: list[str]) -> bool:
    """Returns True if all shards are local; raises `InputError` if only some are."""
    local = {scheme(address) is None for address in addresses}
    if len(local) > 1:
        raise InputError(f"data={visible(addresses[0])!r}: local and remote shards cannot be mixed")
    return local.pop()


def short_names(addresses: list[str]) -> list[str]:
    """Returns the names of shards without the folders that they all share: ``train-0000.tar``, or ``a/0.tar``, ``b/0.tar``."""
    paths = [PurePosixPath(address.split("?", 1)[0].replace("://", "/")).parts for address in addresses]
    shared = min(len(path) for path in paths) - 1
    while shared and len({path[:shared] for path in paths}) > 1:
        shared -= 1
    return ["/".join(path[shared:]) for path in paths]


def require_one_part(files: list[Path], name: str) -> None:
    """Raises `InputError` if shards are of several parts of a data set, such as train and test."""
    parts = sorted({part for file in files if (part := re.split(r"[-_.]", file.name.lower())[0]) in PARTS})
    if len(parts) > 1:
        raise InputError(
            f"{visible(name)}: shards of several parts of a data set ({first_few(parts)}); "
            f"give one, for example {visible(files[0].parent)}/{parts[-1]}-*{files[0].suffix}"
        )
