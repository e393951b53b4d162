"""What the command line says, and where: results on stdout, everything else on stderr, a line each."""

import itertools
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
import yaml

from coulomb.errors import InputError


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
