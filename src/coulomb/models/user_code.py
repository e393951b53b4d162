"""Classes and functions in a user's Python file: ``my_file.py:Name``."""

import importlib.util
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError


def is_user_code(text: str) -> bool:
    """Returns True for ``file.py:Name``."""
    file, _, name = text.rpartition(":")
    return file.endswith(".py") and bool(name)


def load_user_code(option: str, text: str) -> Any:
    """Executes the file of ``text``, ``file.py:Name``, and returns its class or function of that name.

    Raises:
        InputError: naming ``option``: the file does not exist or fails, or has no class or function of that name.
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
    loaded = getattr(module, name, None)
    if not callable(loaded):
        raise InputError(f"{option}={text!r}: {file} has no class or function {name!r}")
    return loaded


def require_call(option: str, text: str, called: Callable[..., Any], *arguments: str) -> None:
    """Raises `InputError` unless a class or function can be called with these positional ``arguments``.

    The message names ``option`` and the parameters without a default.
    """
    try:
        signature = inspect.signature(called)
        signature.bind(*arguments)
    except TypeError as error:
        given = f"with only {', '.join(arguments)}" if arguments else "without arguments"
        raise InputError(
            f"{option}={text!r}: must be callable {given} ({error}); give other parameters a default value"
        ) from None
    except ValueError:  # a built-in without a signature
        return


def with_absolute_path(text: str) -> str:
    """Returns ``file.py:Name`` with an absolute path, which is valid in any working directory."""
    file, _, name = text.rpartition(":")
    return f"{Path(file).resolve()}:{name}"
