"""What the user wrote in a file of their own: ``my_file.py:Name``."""

import importlib.util
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
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(f"{option}={text!r}: {file} has no class or function {name!r}")
    return found


def absolute(text: str) -> str:
    """``file.py:Name`` with the whole path, so that it is found again from elsewhere."""
    file, _, name = text.rpartition(":")
    return f"{Path(file).resolve()}:{name}"
