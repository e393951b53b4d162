"""Which method: one of ours by name, or a class in the user's own file."""

import inspect
from typing import Any

from torch import nn

from coulomb.errors import InputError, did_you_mean
from coulomb.methods import METHODS
from coulomb.models.user_code import from_own_file, is_own_file

OWN = "custom:"  # what a configuration calls a class that was handed over in Python


def check_method_name(name: str) -> None:
    """Refuse what is neither a method's name nor ``file.py:Class``, with the nearest name."""
    if name in METHODS or is_own_file(name) or name.startswith(OWN):
        return
    raise InputError(
        f"method={name!r}: must be one of {', '.join(METHODS)}, or my_file.py:MyMethod" + did_you_mean(name, METHODS)
    )


def method_class(name: str) -> type[nn.Module]:
    """The class that ``name`` means.

    Raises:
        InputError: there is none, or it is no method: an ``nn.Module`` whose forward takes (views, labels, index).
    """
    check_method_name(name)
    if name in METHODS:
        return METHODS[name]
    if name.startswith(OWN):
        raise InputError(f"method={name!r}: the run was trained with a class of your own; pass it again as method=…")
    return checked_class(name, from_own_file("method", name))


def named_class(method: str | type[nn.Module] | None) -> type[nn.Module] | None:
    """The user's own class: ``method`` itself, or from the file that ``my_file.py:MyMethod`` names, which is run; None for
    None and for built-in methods.

    Raises:
        InputError: see `method_class`.
    """
    if method is None or (isinstance(method, str) and not is_own_file(method)):
        return None
    return method_class(method) if isinstance(method, str) else checked_class(OWN + _name_of(method), method)


def _name_of(method: Any) -> str:
    return getattr(method, "__name__", "?")


def checked_class(name: str, found: Any) -> type[nn.Module]:
    """``found``, if it is a class that training can use; ``name`` is what messages call it."""
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise InputError(f"method={name!r}: must be a class derived from torch.nn.Module")
    try:
        inspect.signature(found.forward).bind(None, [], None, None)
    except TypeError:
        raise InputError(f"method={name!r}: forward must take (views, labels, index)") from None
    try:
        inspect.signature(found).bind_partial(None)
    except TypeError:
        raise InputError(f"method={name!r}: must take the encoder as its first argument") from None
    return found


def short_name(name: str) -> str:
    """For folders and titles: the method's name, or the class's for one's own."""
    return name.rpartition(":")[2]
