"""The list of all commands, without importing them: PyTorch, which they import, takes seconds."""

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path

import typer

from coulomb.ground import plugins
from coulomb.ground.errors import InputError

# Command → the module with the function of this name, in the order in which help lists them. Plug-ins follow.
COMMANDS = {
    **dict.fromkeys(("train", "check", "views"), "coulomb.cli.train"),
    **dict.fromkeys(("index", "search"), "coulomb.cli.index"),
    **dict.fromkeys(("evaluate", "doctor", "report", "embed", "encode", "classify"), "coulomb.cli.runs"),
    **dict.fromkeys(("duplicates", "outliers", "label-errors", "choose", "cluster", "mine"), "coulomb.cli.curate"),
    **dict.fromkeys(("export", "push"), "coulomb.cli.export"),
    "verify": "coulomb.cli.verify",
    "version": "coulomb.cli.version",
}


def listing(app: typer.Typer) -> typer.Typer:
    """Returns an application with the callback of ``app`` and the names and help of all commands, for help and errors."""
    shown = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
    shown.registered_callback = app.registered_callback
    helps = {module: read_help(module) for module in dict.fromkeys(COMMANDS.values())}
    for name, module in COMMANDS.items():
        plugins.warn_if_claimed(plugins.COMMANDS, name)
        shown.command(name, help=helps[module][name.replace("-", "_")])(_nothing())
    for name in plugin_commands():
        shown.command(name, help=plugin_help(name))(_nothing())
    return shown


def plugin_commands() -> list[str]:
    """Returns the names of the commands that installed packages add, entry points of the group ``coulomb.commands``."""
    return plugins.plugin_names(plugins.COMMANDS, taken=COMMANDS)


def plugin_help(name: str) -> str:
    """Returns the help of an installed command, or at least the package that it belongs to."""
    try:
        entry = plugins.find_plugin(plugins.COMMANDS, name)
    except InputError as error:
        return str(error)
    return read_help(entry.module).get(entry.attr) or f"A command of {plugins.package(entry)}."


def _nothing() -> Callable[[], None]:
    return lambda: None


def read_help(module: str) -> dict[str, str]:
    """Returns function or group → its help, read from the source of a module; empty if it has no source or no valid one."""
    path = find_source(module)
    try:
        tree = ast.parse("" if path is None else path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return {}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = ast.get_docstring(node) or ""
        elif (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
        ):
            for each in node.value.keywords:
                if each.arg == "help" and isinstance(each.value, ast.Constant):
                    found[node.targets[0].id] = str(each.value.value)
    return found


def find_source(module: str) -> Path | None:
    """Returns the source file of a module without importing its package; None if there is none."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    folders = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    paths = [path for folder in folders for path in (folder.with_suffix(".py"), folder / "__init__.py")]
    return next((path for path in [*paths, Path(spec.origin or "")] if path.is_file()), None)
