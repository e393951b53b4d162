"""Options of a loss, checked whenever they are set: in the constructor and as attributes later."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import nn

from coulomb.checked import checked_flag
from coulomb.losses.arguments import REDUCTIONS, checked_choice
from coulomb.losses.names_elsewhere import unknown_option
from coulomb.similarity.collectives import checked_gather

Check = Callable[[str, Any], Any]


class Loss(nn.Module):
    """Parent of all losses.

    ``checks`` maps the name of an option to a function of (name, value) that returns the value to store, or raises a
    TypeError or ValueError. A subclass lists the options that it adds. Reading an option costs nothing.
    """

    checks: ClassVar[Mapping[str, Check]] = {
        "reduction": functools.partial(checked_choice, choices=REDUCTIONS),
        "normalize": checked_flag,
        "diagnose": checked_flag,
        "gather": lambda _, value: checked_gather(value),
    }

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.checks = {
            name: check for one in reversed(cls.__mro__) for name, check in vars(one).get("checks", {}).items()
        }
        if "__init__" in vars(cls):
            cls.__init__ = _with_known_names(cls.__init__)  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        check = self.checks.get(name)
        super().__setattr__(name, value if check is None else check(name, value))


def _with_known_names(init: Callable[..., None]) -> Callable[..., None]:
    """``init`` whose TypeError for an unknown option names the option to use instead."""
    _, *parameters = inspect.signature(init).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return init
    names = [one.name for one in parameters]

    @functools.wraps(init)
    def checked_init(self: Any, *arguments: Any, **options: Any) -> None:
        for name in options:
            if name not in names:
                raise TypeError(unknown_option(type(self).__name__, name, names))
        init(self, *arguments, **options)

    return checked_init


def optional(check: Check) -> Check:
    """``check``, or None."""
    return lambda name, value: None if value is None else check(name, value)
