"""The list of all commands, without importing them: PyTorch, which they import, takes seconds."""

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path

import typer

# Command → the module with the function or group of this name, in the order in which help lists them.
COMMANDS = {
    **dict.fromkeys(("train", "check", "views"), "coulomb.cli.train"),
    **dict.fromkeys(("index", "search"), "coulomb.cli.index"),
    **dict.fromkeys(("evaluate", "doctor", "report", "embed", "encode", "classify"), "coulomb.cli.runs"),
    **dict.fromkeys(("duplicates", "outliers", "label-errors", "choose", "cluster"), "coulomb.cli.curate"),
    "browse": "coulomb_browse.command",
    **dict.fromkeys(("export", "push"), "coulomb.cli.export"),
    "lab": "coulomb_lab.command",
}


def listing(app: typer.Typer) -> typer.Typer:
    """Returns an application with the callback of ``app`` and the names and help of all commands, for help and errors."""
    shown = typer.Typer(
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )
    shown.registered_callback = app.registered_callback
    helps = {module: read_help(module) for module in dict.fromkeys(COMMANDS.values())}
    for name, module in COMMANDS.items():
        shown.command(name, help=helps[module][name.replace("-", "_")])(_nothing())
    return shown


def _nothing() -> Callable[[], None]:
    return lambda: None


def read_help(module: str) -> dict[str, str]:
    """Returns function or group → its help, read from the source of a module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
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
