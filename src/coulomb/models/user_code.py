"""Classes and functions in a user's Python file: ``my_file.py:Name``."""

import importlib.util
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coulomb.errors import InputError


def is_own_file(text: str) -> bool:
    """Whether ``text`` reads as ``file.py:Name``."""
    file, _, name = text.rpartition(":")
    return file.endswith(".py") and bool(name)


def from_own_file(option: str, text: str) -> Any:
    """The class or function that ``text``, ``file.py:Name``, names; the file is run.

    Raises:
        InputError: naming ``option``: there is no such file, or nothing of that name to call in it.
    """
    file, _, name = text.rpartition(":")
    if not Path(file).is_file():
        raise InputError(f"{option}={text!r}: no such file {file}")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{option}={text!r}: line {error.lineno} of {file} is not valid Python: {error.msg}") from None
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f"line {lines[-1]} of {file}" if lines else file
        raise InputError(f"{option}={text!r}: {where} failed: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(f"{option}={text!r}: {file} has no class or function {name!r}")
    return found


def require_call(option: str, text: str, called: Callable[..., Any], *arguments: str) -> None:
    """Refuse a class or function that cannot be called with as many positional ``arguments``, which the message names.

    Raises:
        InputError: naming ``option``, and the parameters without a default.
    """
    try:
        signature = inspect.signature(called)
        signature.bind(*arguments)
    except TypeError as error:
        given = f"with {', '.join(arguments)} alone" if arguments else "without arguments"
        raise InputError(
            f"{option}={text!r}: must be callable {given} ({error}); give other parameters a default value"
        ) from None
    except ValueError:  # a built-in without a signature
        return


def absolute(text: str) -> str:
    """``file.py:Name`` with the whole path, so that it is found again from elsewhere."""
    file, _, name = text.rpartition(":")
    return f"{Path(file).resolve()}:{name}"
