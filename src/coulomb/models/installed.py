"""Encoders of other installed packages: entry points of the group ``coulomb.encoders``."""

import inspect

from torch import nn

from coulomb.ground.errors import InputError
from coulomb.ground.plugins import ENCODERS, find_plugin, load_plugin, package, plugin_names
from coulomb.models.backbones import BACKBONES


def installed_encoders() -> list[str]:
    """Returns the names of the encoders that installed packages add."""
    return plugin_names(ENCODERS, taken=BACKBONES)


def build_installed(name: str, *, channels: int, image_size: int) -> nn.Module:
    """Builds an installed encoder: calls its class or function with ``channels`` and ``image_size`` if it declares them.

    Raises:
        InputError: the package cannot be imported, or the call fails or returns no module.
    """
    made = load_plugin(ENCODERS, name)
    where = f"encoder={name!r} of {package(find_plugin(ENCODERS, name))}"
    if not callable(made):
        raise InputError(f"{where}: must be a class or a function, and is a {type(made).__name__}")
    facts = {"channels": channels, "image_size": image_size}
    try:
        signature = inspect.signature(made)
        given = {fact: value for fact, value in facts.items() if fact in signature.parameters}
        signature.bind(**given)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: must be callable with at most channels and image_size ({error})") from None
    built = made(**given)
    if not isinstance(built, nn.Module):
        raise InputError(f"{where}: returned a {type(built).__name__}, not a torch.nn.Module")
    return built
