"""The application: console output, error messages and exit codes."""

import importlib
import inspect
import itertools
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer

from coulomb.cli.overview import COMMANDS, listing, plugin_commands
from coulomb.ground import plugins
from coulomb.ground.errors import InputError, LostProcessError, NonFiniteError
from coulomb.ground.names_elsewhere import run_option
from coulomb.ground.version import __version__

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown")
COMPLETION = "_COULOMB_COMPLETE"  # environment variable that a shell sets when it asks how a line could go on
UsageError: Any = typer.BadParameter.__base__  # Typer contains a copy of click and exports no other name for this class


def main() -> None:
    """Runs the command that the arguments of this process name, and exits with its code."""
    arguments = words_to_complete() if COMPLETION in os.environ else sys.argv[1:]
    run(lambda: commands(arguments)(standalone_mode=False))


def run(command: Callable[[], Any]) -> NoReturn:
    """Calls ``command`` and exits with the code that it returns; an error that the user can correct is one line on stderr.

    Exit code 2: wrong input. 1: the command failed. 130: interrupted.
    """
    with console():
        try:
            code = command() or 0
        except UsageError as error:
            code = fail(unknown_option(error) or with_value(error.format_message()), 2)
        except InputError as error:
            code = 2 if hasattr(error, "repeated") else fail(str(error), 2)
        except (NonFiniteError, LostProcessError) as error:
            code = 1 if hasattr(error, "repeated") else fail(str(error), 1)
        except OSError as error:
            code = fail(f"{error.filename or 'file system'}: {error.strerror or error}", 2)
        except (MemoryError, RuntimeError) as error:
            import torch  # its RuntimeError is plain when the CPU is out of memory

            if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            code = fail(f"not enough memory ({reason}); use a smaller image_size, batch_size or cache_gb", 2)
        except (KeyboardInterrupt, typer.Abort):
            code = fail("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def words_to_complete() -> list[str]:
    """Returns the words of the line that a shell completes if they end with an option or its value, else none.

    Then the list of commands is enough: names of files need no import of PyTorch, which takes seconds.
    """
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")  # of bash; of other shells
    words = line.split()[1:]
    return words if any(word.startswith("-") for word in words[-2:]) else []


def commands(arguments: list[str]) -> typer.Typer:
    """Returns the application with the command that the ``arguments`` begin with, or with a list of all commands."""
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        importlib.import_module(COMMANDS[name])  # registers the commands of this module
    elif name in plugin_commands():
        add_plugin(name)
    else:
        return listing(app)
    return app


def add_plugin(name: str) -> None:
    """Imports the package that adds the command ``name``, and registers its function or group of commands.

    Raises:
        InputError: the package cannot be imported, or its entry point is neither a function nor a ``typer.Typer``.
    """
    found = plugins.load_plugin(plugins.COMMANDS, name)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    elif inspect.isfunction(found):
        app.command(name, epilog=getattr(found, "epilog", None))(found)
    else:
        where = plugins.package(plugins.find_plugin(plugins.COMMANDS, name))
        raise InputError(
            f"command {name!r} of {where}: must be a function or a typer.Typer, not a {type(found).__name__}"
        )


@app.callback(
    invoke_without_command=True,
    epilog="Examples:\n\ncoulomb train digits --epochs 20\n\ncoulomb train photos/ --out runs/photos",
)
def _without_command(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False
) -> None:
    """Contrastive representation learning, exact at any batch size."""
    if version:
        say(__version__)
    elif context.invoked_subcommand is None:
        say(context.get_help())


def say(text: str) -> None:
    """Prints to standard output."""
    typer.echo(text)


def note(text: str) -> None:
    """Prints one line to stderr, where everything but results goes."""
    print(f"coulomb: {text}", file=sys.stderr)  # noqa: T201


def fail(message: str, code: int) -> int:
    """Prints an error as one line and returns ``code``, for `sys.exit`."""
    note(f"error: {' '.join(message.split())}")
    return code


def unknown_option(error: Any) -> str | None:
    """Returns a message that translates an option's name in other libraries to the name here; None for other errors."""
    name = getattr(error, "option_name", None)
    if name is None or error.ctx is None:
        return None
    flags = {flag.lstrip("-").replace("-", "_"): flag for each in error.ctx.command.params for flag in each.opts}
    here = run_option(name.lstrip("-").replace("-", "_"), list(flags))
    if here is None:
        return None
    flag = flags[here]
    return f"No such option: {name}; use {flag if flag.startswith('-') else f'the argument {flag.upper()}, without a flag'}"


def with_value(message: str) -> str:
    """Adds the value that the user gave to a message of Typer, which has only the name of the option."""
    for option, value in itertools.pairwise(sys.argv):
        if f"'{option}'" in message and message.startswith("Invalid value"):
            return message.replace(f"'{option}'", f"{option} {value!r}")
    return message


class Console(logging.Handler):
    """Prints the library's log messages as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints one line, with the level if it is above INFO."""
        if not record.getMessage().startswith("stopped:"):  # `main` prints this error
            level = "" if record.levelno <= logging.INFO else record.levelname.lower() + ": "
            note(f"{level}{record.getMessage()}")


@contextmanager
def console() -> Iterator[None]:
    """Prints log messages and warnings of the library as lines on stderr while the block runs."""

    def show(message: Any, category: type, *_: Any, **__: Any) -> None:
        note(f"warning: {' '.join(str(message).split())}")

    logger, handler = logging.getLogger("coulomb"), Console(logging.INFO)
    level, previous = logger.level, warnings.showwarning
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    warnings.showwarning = show
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        warnings.showwarning = previous


def parse_pairs(texts: list[str], example: str) -> dict[str, Any]:
    """Parses ``["a=1", "b=[2, 3]"]`` into {"a": 1, "b": (2, 3)}; values are YAML.

    Raises:
        InputError: a text is no name=value; the message shows ``example``.
    """
    import yaml

    flag, parsed = example.split(maxsplit=1)[0], {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{flag} {text!r}: write it as name=value, such as {example}")
        try:
            content = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{flag} {text!r}: {value!r} cannot be parsed as a YAML value ({reason}); "
                f"write a number, a word or a list such as [1, 2]"
            ) from None
        parsed[name.strip()] = tuple(content) if isinstance(content, list) else content
    return parsed
