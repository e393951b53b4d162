"""Commands, methods and encoders of other installed packages, found by their entry points.

Finding a name imports nothing. A package is imported when its name is used; that it is installed is the user's consent.
"""

import functools
import sys
import warnings
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from coulomb.ground.errors import CoulombWarning, InputError

COMMANDS, METHODS, ENCODERS = "coulomb.commands", "coulomb.methods", "coulomb.encoders"
KINDS = {COMMANDS: "command", METHODS: "method", ENCODERS: "encoder"}


def _claims(group: str) -> dict[str, list[EntryPoint]]:
    return _search(group, tuple(sys.path))


@functools.cache
def _search(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    claims: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        claims.setdefault(entry.name, []).append(entry)
    return claims


def plugin_names(group: str, taken: Collection[str] = ()) -> list[str]:
    """Returns the names that installed packages add to ``group``, sorted, without the names that are ``taken``."""
    return [name for name in _claims(group) if name not in taken]


def warn_if_claimed(group: str, name: str) -> None:
    """Warns if an installed package claims ``name``, which coulomb has itself."""
    if claims := _claims(group).get(name):
        warnings.warn(
            f"the {KINDS[group]} {name!r} of {' and '.join(map(package, claims))} is not used, because coulomb has a "
            f"{KINDS[group]} of this name",
            CoulombWarning,
            stacklevel=2,
        )


def find_plugin(group: str, name: str) -> EntryPoint:
    """Returns the entry point of a name in `plugin_names`.

    Raises:
        InputError: several packages claim the name.
    """
    entry, *others = _claims(group)[name]
    if others:
        packages = ", ".join(map(package, [entry, *others]))
        raise InputError(f"{KINDS[group]} {name!r} is in several packages: {packages}; uninstall all but one of them")
    return entry


def load_plugin(group: str, name: str) -> Any:
    """Imports the package that adds ``name`` to ``group``, and returns its object.

    Raises:
        InputError: the import fails, or several packages claim the name. The message names the package.
    """
    entry = find_plugin(group, name)
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{KINDS[group]} {name!r}: importing {entry.value} of {package(entry)} failed ({reason}); update or uninstall "
            "that package"
        ) from error


def package(entry: EntryPoint) -> str:
    """Returns "the package NAME VERSION" that an entry point belongs to."""
    return "an unknown package" if entry.dist is None else f"the package {entry.dist.name} {entry.dist.version}"
