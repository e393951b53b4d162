"""From a method's name and options to the module: built-in or the user's own class, checked against its signature."""

import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from coulomb.ground import plugins
from coulomb.ground.checked import type_mismatch
from coulomb.ground.errors import InputError, did_you_mean
from coulomb.methods import METHODS, PAIR_METHODS
from coulomb.methods.interface import Method
from coulomb.models import Encoder, Tower, Towers
from coulomb.models.user_code import is_user_code, load_user_code

OWN = "custom:"  # prefix in a configuration for a class passed from Python
HEAD = ("embedding_dim", "head_layers", "head_hidden_dim")  # options of the tower's head
SHARED = ("temperature", *HEAD, "seed")  # options of every run
HOOKS = ("after_batch", "after_update", "no_signal", "floor", "figures", "classifier")
FACTS = ("num_images", "class_counts", "num_classes", "cell_ids", "negatives")  # read from the training images


def check_method_name(name: str) -> None:
    """Raises `InputError`, with the nearest name, unless ``name`` is a built-in, installed or user's method."""
    if name in METHODS:
        plugins.warn_if_claimed(plugins.METHODS, name)
    if name in METHODS or name in PAIR_METHODS or is_user_code(name) or name.startswith(OWN):
        return
    names = [*dict.fromkeys([*METHODS, *PAIR_METHODS]), *installed_methods()]
    if name not in names:
        raise InputError(
            f"method={name!r}: must be one of {', '.join(names)}, or my_file.py:MyMethod, or a method of a package that is "
            f"installed{did_you_mean(name, names)}"
        )


def installed_methods() -> list[str]:
    """Returns the names of the methods that other installed packages add, entry points of the group ``coulomb.methods``."""
    return plugins.plugin_names(plugins.METHODS, taken=METHODS)


def find_method(name: str) -> type[Method]:
    """Returns the class that ``name`` refers to; a user's file is executed, an installed package imported.

    Raises:
        InputError: no such class, or it is not an ``nn.Module`` whose forward takes (views, labels, train_row).
    """
    check_method_name(name)
    if name in METHODS:
        return METHODS[name]
    if name in PAIR_METHODS:
        raise InputError(f"method={name!r}: contrasts several columns; give them, such as columns='image,caption'")
    if name.startswith(OWN):
        raise InputError(f"method={name!r}: the run was trained with your own class; pass it again as method=…")
    if is_user_code(name):
        return check_method(name, load_user_code("method", name))
    return check_method(name, plugins.load_plugin(plugins.METHODS, name))


def load_own_method(method: str | type[nn.Module] | None) -> type[Method] | None:
    """Returns the user's own class, given as such or as ``my_file.py:MyMethod``; None for built-in methods.

    Raises:
        InputError: see `find_method`.
    """
    if method is None or (isinstance(method, str) and not is_user_code(method)):
        return None
    return (
        find_method(method) if isinstance(method, str) else check_method(OWN + getattr(method, "__name__", "?"), method)
    )


def check_method(name: str, given: Any) -> type[Method]:
    """Returns ``given``, with the defaults of `Method`, if training can use it; ``name`` is its name in messages."""
    if not (isinstance(given, type) and issubclass(given, nn.Module)):
        raise InputError(f"method={name!r}: must be a class derived from torch.nn.Module")
    try:
        inspect.signature(given.forward).bind(None, [], None, None)
    except TypeError:
        raise InputError(f"method={name!r}: forward must take (views, labels, train_row)") from None
    try:
        inspect.signature(given).bind_partial(None)
    except TypeError:
        raise InputError(f"method={name!r}: must take a tower as its first argument") from None
    if issubclass(given, Method):
        return given
    names = {"__module__": given.__module__, "__qualname__": given.__qualname__, "__doc__": given.__doc__}
    return types.new_class(given.__name__, (given, Method), exec_body=lambda body: body.update(names))


def short_name(name: str) -> str:
    """Returns the method's name for folders and titles: for a user's own class, the class name."""
    return name.rpartition(":")[2]


def accepted_parameters(method: type[nn.Module]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Returns the keyword arguments of the constructor by name, without the tower, and whether it accepts any others."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    named = {parameter.name: parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    return named, len(named) < len(parameters)


def used_options(method: type[Method]) -> set[str]:
    """Returns those of the options of every run (``SHARED``) that the method or its tower uses."""
    accepted, open_ended = accepted_parameters(method)
    head = () if method.default_head is None else HEAD
    return {*SHARED} if open_ended else {"seed", *head, *accepted} & {*SHARED}


def own_options(method: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Returns the keyword arguments that only this method has."""
    return {name: p for name, p in accepted_parameters(method)[0].items() if name not in SHARED + FACTS}


def complete_options(name: str, method: type[nn.Module], given: dict[str, Any]) -> dict[str, Any]:
    """Returns ``given`` over the method's own defaults (those that a configuration file can hold).

    Raises:
        InputError: an option that the method does not have, with the nearest one; a value of another type; a missing
            option without default.
    """
    own, open_ended = own_options(method), accepted_parameters(method)[1]
    hints = typing.get_type_hints(method.__init__)
    for option, value in given.items():
        if option in SHARED:
            flag = "--" + option.replace("_", "-")
            raise InputError(
                f"method option {option}={value!r}: is an option of every run; give {flag} ({option}=… in Python)"
            )
        if option not in own:
            if open_ended and option not in FACTS:
                continue
            hint = did_you_mean(option, own) or f"; it has {', '.join(own) or 'none'}"
            raise InputError(f"method {name!r} has no option {option!r}{hint}")
        if (problem := type_mismatch(value, hints.get(option, Any))) is not None:
            raise InputError(f"option {option}={value!r} of method {name!r}: {problem}")
    plain = (type(None), bool, int, float, str)
    defaults = {option: p.default for option, p in own.items() if isinstance(p.default, plain)}
    missing = [option for option, p in own.items() if p.default is p.empty and option not in given]
    if missing:
        raise InputError(f"method {name!r} needs {', '.join(missing)}; give --option {missing[0]}=VALUE")
    return defaults | given


def build_method(
    name: str,
    method: type[Method],
    encoder: Encoder,
    *,
    shared: Mapping[str, Any],
    num_images: int,
    class_counts: Tensor | None,
    own: Mapping[str, Any],
) -> Method:
    """Builds the method with a tower around ``encoder``, and those options and facts that its constructor declares.

    Args:
        shared: values of the options in ``SHARED``. own: the method's own options.
        num_images: training images. class_counts: training images of each class [C]; None without labels.

    Raises:
        InputError: the method refuses a value, or it needs classes and there are no labels.
    """
    accepted, _ = accepted_parameters(method)
    num_classes = None if class_counts is None else len(class_counts)
    facts = {"num_images": num_images, "class_counts": class_counts, "num_classes": num_classes}
    passed = {key: shared[key] for key in SHARED if key in accepted and key in shared}
    for key, value in facts.items():
        if key in accepted and value is not None:
            passed[key] = value
        elif key in accepted and accepted[key].default is inspect.Parameter.empty:
            raise InputError(f"method={name!r}: needs labels ({key}), and the data have none; use one that needs none")
    head = {key: shared[key] for key in HEAD if key in shared}
    return _construct(name, method, method.tower_for(encoder, seed=shared["seed"], **head), **passed, **own)


def build_pair_method(
    name: str,
    method: type[Method],
    towers: Towers,
    *,
    cell_ids: Tensor,
    negatives: tuple[str, ...],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
) -> Method:
    """Builds a method of several columns; see `build_method`, and `coulomb.methods.several.SeveralColumns`.

    Args:
        towers: by column. cell_ids: int64 [n, C] of the training rows. negatives: columns of hard negatives.
        shared: values of the options in ``SHARED``. own: the method's own options.

    Raises:
        InputError: the method refuses a value.
    """
    accepted, _ = accepted_parameters(method)
    passed = {key: shared[key] for key in SHARED if key in accepted and key in shared}
    return _construct(name, method, towers, cell_ids=cell_ids, negatives=negatives, **passed, **own)


def _construct(name: str, method: type[Method], first: Tower | Towers, **named: Any) -> Method:
    try:
        built = method(first, **named)
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        if not method.__module__.startswith("coulomb."):
            raise  # the traceback shows users the mistake in their own code
        raise InputError(f"method {name!r}: {error}") from error
    held = built._modules | built._parameters | built._buffers
    if hidden := [hook for hook in HOOKS if hook in held]:
        raise InputError(
            f"method={name!r}: its attribute {hidden[0]!r} has the name of a hook, see coulomb.methods.Method; rename it"
        )
    if not isinstance(getattr(built, "tower", None), Tower):
        raise InputError(f"method={name!r}: has no tower; assign the tower that it receives to self.tower")
    return built
