"""All commands, registered: `app` as Typer needs it for whatever lists options."""

import importlib

from coulomb.cli.app import app
from coulomb.cli.overview import COMMANDS

for module in dict.fromkeys(COMMANDS.values()):  # in the order in which help lists them
    importlib.import_module(module)

__all__ = ["app"]
