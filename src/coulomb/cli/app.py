"""The application: console output, error handling and exit codes."""

import itertools
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import typer
import yaml

import coulomb
from coulomb.errors import InputError, LostProcessError, NonFiniteError


def say(text: str) -> None:
    """Print to standard output."""
    typer.echo(text)


def fail(message: str, code: int) -> int:
    """Print an error as one line and return ``code``, for `sys.exit`."""
    print(f"coulomb: error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return code


def with_value(message: str) -> str:
    """Typer names the option but not what was given for it: add that."""
    for option, value in itertools.pairwise(sys.argv):
        if f"'{option}'" in message and message.startswith("Invalid value"):
            return message.replace(f"'{option}'", f"{option} {value!r}")
    return message


def one_line_warning(message: Any, category: type, *_: Any, **__: Any) -> None:
    """A `warnings.showwarning` without file and source line."""
    print(f"coulomb: warning: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201


class Console(logging.Handler):
    """What the library logs, as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line, with the level where it is more than information."""
        if not record.getMessage().startswith("stopped:"):  # said again as the command's own error
            level = "" if record.levelno <= logging.INFO else record.levelname.lower() + ": "
            print(f"coulomb: {level}{record.getMessage()}", file=sys.stderr)  # noqa: T201


@contextmanager
def console() -> Iterator[None]:
    """Prints what the library logs and warns of as lines on stderr."""
    logger, handler = logging.getLogger("coulomb"), Console(logging.INFO)
    level, show = logger.level, warnings.showwarning
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    warnings.showwarning = one_line_warning
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        warnings.showwarning = show


def pairs(texts: list[str], example: str) -> dict[str, Any]:
    """``["a=1", "b=[2, 3]"]`` → {"a": 1, "b": (2, 3)}, values as YAML; ``example`` is shown where one cannot be read."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{example.split(maxsplit=1)[0]} {text!r}: write it as name=value, such as {example}")
        try:
            parsed = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{example.split(maxsplit=1)[0]} {text!r}: {value!r} cannot be read as a YAML value ({reason}); "
                f"write a number, a word or a list such as [1, 2]"
            ) from None
        found[name.strip()] = tuple(parsed) if isinstance(parsed, list) else parsed
    return found


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
UsageError: Any = typer.BadParameter.__base__  # Typer carries its own copy of click and exports no other name for it


def main() -> None:
    """Entry point: mistakes that the user can mend are one line on stderr and exit code 2."""
    with console():
        try:
            code = app(standalone_mode=False) or 0
        except UsageError as error:
            code = fail(with_value(error.format_message()), 2)
        except InputError as error:
            code = fail(str(error), 2)
        except (NonFiniteError, LostProcessError) as error:
            code = fail(str(error), 1)
        except OSError as error:
            code = fail(f"{error.filename or 'file system'}: {error.strerror or error}", 2)
        except (MemoryError, RuntimeError) as error:
            # PyTorch raises a plain RuntimeError where the CPU has no memory left.
            if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            code = fail(f"not enough memory ({reason}); use a smaller image_size, batch_size or cache_gb", 2)
        except (KeyboardInterrupt, typer.Abort):
            code = fail("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False
) -> None:
    """coulomb: contrastive representation learning, exact at any batch size."""
    if version:
        say(coulomb.__version__)
    elif context.invoked_subcommand is None:
        say(context.get_help())
