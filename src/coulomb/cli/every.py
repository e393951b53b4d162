"""All commands, registered: `app` as Typer needs it for whatever lists options."""

import importlib

from coulomb.cli.app import add_plugin, app
from coulomb.cli.overview import COMMANDS, plugin_commands

for module in dict.fromkeys(COMMANDS.values()):  # in the order in which help lists them
    importlib.import_module(module)
for name in plugin_commands():
    add_plugin(name)

__all__ = ["app"]
