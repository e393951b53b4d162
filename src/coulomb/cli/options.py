"""The options of a run on the command line: the fields of ``Config``, the same for every command that takes them."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from coulomb.cli.app import pairs
from coulomb.runs.config import Config, load_config
from coulomb.runs.objects import require_named


def config_parameters(*, without: tuple[str, ...] = ()) -> list[inspect.Parameter]:
    """A keyword parameter for each field of ``Config`` not in ``without``, and ``config``, a file to start from."""
    hints = typing.get_type_hints(Config)
    parameters = []
    for option in dataclasses.fields(Config):
        if option.name in without:
            continue
        kind: Any = hints[option.name] | None
        text = option.metadata["help"]
        if option.metadata.get("choices"):
            text += f" ({', '.join(option.metadata['choices'])})"
        made: Any
        if option.name == "data":
            made = typer.Argument(help=text, show_default=False)
        elif option.name == "view_options":
            kind, made = list[str] | None, typer.Option("--view", help=text, metavar="NAME=VALUE")
        elif option.name == "method_options":
            kind, made = list[str] | None, typer.Option("--option", help=text, metavar="NAME=VALUE")
        else:
            made = typer.Option("--" + option.name.replace("_", "-"), help=text, show_default=False)
        parameters.append(keyword(option.name, kind, made, None))
    file = typer.Option(help="config.yaml of another run to start from")
    return [*parameters, keyword("config", Path | None, file, None)]


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, over those of the file ``config``, as fields of ``Config``.

    Code and files to write that the file names must be given in this call too.
    """
    file = given.pop("config")
    options = {name: value for name, value in given.items() if value is not None and value != []}
    if given.get("view_options"):
        options["view_options"] = pairs(given["view_options"], "--view flip=0")
    if given.get("method_options"):
        options["method_options"] = pairs(given["method_options"], "--option queue_size=4096")
    if file is None:
        return options
    found = {name: value for name, value in dataclasses.asdict(load_config(file)).items() if name != "out"}
    require_named(file, found, options)
    return found | options


def keyword(name: str, kind: Any, made: Any, default: Any) -> inspect.Parameter:
    """A keyword-only parameter with Typer's description ``made``."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])


def with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """``function(**given)`` with the signature that Typer reads."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function
