"""The list of all commands, without importing them: PyTorch, which they import, takes seconds."""

import ast
from collections.abc import Callable
from pathlib import Path

import typer

# Command → the module with the function or group of this name, in the order in which help lists them.
COMMANDS = {
    **dict.fromkeys(("train", "check", "views"), "train"),
    **dict.fromkeys(("index", "search"), "index"),
    **dict.fromkeys(("evaluate", "doctor", "report", "embed", "encode", "classify"), "runs"),
    **dict.fromkeys(("duplicates", "outliers", "label-errors", "choose", "cluster"), "curate"),
    "browse": "browse",
    **dict.fromkeys(("export", "push"), "export"),
    **dict.fromkeys(("lab", "bench"), "lab"),
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
    """Returns function or group → its help, read from the source of a module of this package."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
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
