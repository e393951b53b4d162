"""A method made by its signature: it is given what it asks for by name, and nothing else."""

import inspect
import types
import typing
from typing import Any

from torch import nn

from coulomb.errors import InputError, did_you_mean
from coulomb.models import Encoder

SHARED = ("temperature", "embedding_dim", "head_layers", "head_hidden_dim", "seed")  # options of every run
FACTS = ("num_images", "class_counts", "num_classes")  # found out from the training images


def own_options(method: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """The keyword arguments that are the method's alone."""
    parameters = list(inspect.signature(method).parameters.values())[1:]  # without the encoder
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: p for p in parameters if p.kind in named and p.name not in SHARED + FACTS}


def complete_options(name: str, method: type[nn.Module], given: dict[str, Any]) -> dict[str, Any]:
    """``given`` over the method's own defaults (those that a file can hold).

    Raises:
        InputError: an option that the method does not have, with the nearest that it has; one of another type; one
            that has no default and was not given.
    """
    known = own_options(method)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(method).parameters.values())
    for option, value in given.items():
        if option in SHARED:
            flag = "--" + option.replace("_", "-")
            raise InputError(f"method option {option}={value!r}: every run has it; give {flag} ({option}=… in Python)")
        if option not in known:
            if open_ended and option not in FACTS:
                continue
            hint = did_you_mean(option, known) or f"; it has {', '.join(known) or 'none'}"
            raise InputError(f"method {name!r} has no option {option!r}{hint}")
        _check_type(name, option, value, _hints(method).get(option, Any))
    plain = (type(None), bool, int, float, str)
    defaults = {option: p.default for option, p in known.items() if isinstance(p.default, plain)}
    missing = [option for option, p in known.items() if p.default is p.empty and option not in given]
    if missing:
        raise InputError(f"method {name!r} needs {', '.join(missing)}; give --option {missing[0]}=VALUE")
    return defaults | given


def make_method(
    name: str, method: type[nn.Module], encoder: Encoder, *, shared: dict[str, Any], facts: dict[str, Any], own: dict
) -> nn.Module:
    """The method around ``encoder``, with those of ``shared`` and ``facts`` that it takes, and its ``own`` options.

    Raises:
        InputError: a value is refused by the method, or it needs to know classes and there are no labels.
    """
    parameters = inspect.signature(method).parameters
    passed = {key: value for key, value in (shared | facts).items() if key in parameters}
    for key in FACTS:
        if key in passed and passed[key] is None:
            if parameters[key].default is inspect.Parameter.empty:
                raise InputError(f"method={name!r}: needs labels ({key}), and there are none")
            del passed[key]
    try:
        return method(encoder, **passed, **own)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        if not method.__module__.startswith("coulomb."):
            raise  # a user's own mistake is best seen with its traceback
        raise InputError(f"method {name!r}: {error}") from error


def _hints(method: type[nn.Module]) -> dict[str, Any]:
    return typing.get_type_hints(method.__init__)


def _check_type(name: str, option: str, value: Any, hint: Any) -> None:
    """Only plain types are looked at; whatever else a method asks for is its own to check."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if not all(kind in (type(None), bool, int, float, str) for kind in kinds):
        return
    as_float = float in kinds and isinstance(value, int) and not isinstance(value, bool)
    if as_float or (isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)):
        return
    wanted = " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
    raise InputError(f"option {option}={value!r} of method {name!r}: expected {wanted}")
