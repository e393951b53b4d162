"""The options of a run on the command line: the fields of ``Config``, the same for every command that takes them."""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from coulomb.cli.app import parse_pairs
from coulomb.methods import METHODS
from coulomb.training.plan.config import Config, load_config
from coulomb.training.plan.given import require_named

PAIRS = {  # fields that hold several options, each given as NAME=VALUE: the flag, and an example for error messages
    "view_options": ("--view", "--view flip=0"),
    "method_options": ("--option", "--option queue_size=4096"),
}
ALIASES = {"num_nodes": ("--nodes",)}
JSON = typer.Option("--json", help="print one JSON object")
OWN_ENCODER = typer.Option(help="my_file.py:MyEncoder, if the run was trained with one")
OWN_METHOD = typer.Option(help="my_file.py:MyMethod, if the run was trained with one")


def examples(*commands: str) -> str:
    """Returns the end of a command's help, one example per line."""
    return "\n\n".join(["Examples:", *commands])


def with_examples(*commands: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that gives a command of a plug-in the end of its help, one example per line."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        function.epilog = examples(*commands)  # type: ignore[attr-defined]
        return function

    return add


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Returns what `typer.Option` takes as ``autocompletion``, for an option that is one of ``values``."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def config_parameters(*, without: tuple[str, ...] = ()) -> list[inspect.Parameter]:
    """Returns a keyword parameter for each field of ``Config`` not in ``without``, and ``config``, a file to start from."""
    hints = typing.get_type_hints(Config)
    parameters = []
    for option in dataclasses.fields(Config):
        if option.name in without:
            continue
        kind: Any = hints[option.name] | None
        text, panel, choices = (option.metadata[name] for name in ("help", "panel", "choices"))
        if choices:
            text += f" ({', '.join(choices)})"
        described: Any
        if option.name == "data":
            described = typer.Argument(help=text, show_default=False)
        elif option.name in PAIRS:
            kind = list[str] | None
            described = typer.Option(PAIRS[option.name][0], help=text, metavar="NAME=VALUE", rich_help_panel=panel)
        else:
            flag = "--" + option.name.replace("_", "-")
            if hints[option.name] is bool:
                flag += flag.replace("--", "/--no-", 1)
            flags = flag, *ALIASES.get(option.name, ())
            known = tuple(METHODS) if option.name == "method" else choices
            completed = None if known is None else one_of(known)
            described = typer.Option(
                *flags, help=text, show_default=False, rich_help_panel=panel, autocompletion=completed
            )
        parameters.append(keyword(option.name, kind, described, None))
    file = typer.Option(help="config.yaml of another run to start from", rich_help_panel="Run")
    return [*parameters, keyword("config", Path | None, file, None)]


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of this call, which override the file ``config``, as fields of ``Config``.

    User code and files to write that the file names must be named in this call, too.
    """
    file = given.pop("config")
    options = {name: value for name, value in given.items() if value is not None and value != []}
    for name, (_, example) in PAIRS.items():
        if given.get(name):
            options[name] = parse_pairs(given[name], example)
    if file is None:
        return options
    saved = {name: value for name, value in dataclasses.asdict(load_config(file)).items() if name != "out"}
    require_named(file, saved, options)
    return saved | options


def keyword(name: str, kind: Any, described: Any, default: Any) -> inspect.Parameter:
    """Returns a keyword-only parameter with Typer's description."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, described]
    )


def with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Gives ``function(**given)`` the signature that Typer reads."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function
