"""Imports libraries that are needed for some exports only, without their warnings."""

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from coulomb.ground.errors import InputError


def library(module: str, extra: str, what: str) -> ModuleType:
    """Imports a library; raises `InputError` with the command that installs it if it is missing."""
    try:
        with quiet():
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise InputError(f"to={what}: needs {error.name}: pip install 'coulomb[{extra}]'") from None


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Context that hides warnings, and messages of ``loggers`` below the level of errors: they are about other libraries."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def new_path(out: str | Path) -> Path:
    """Returns ``out`` as a path; raises `InputError` if it exists or its folder does not."""
    path = Path(out).expanduser()
    if path.exists() or path.is_symlink():
        raise InputError(f"out={str(out)!r}: already exists; choose another name")
    if not path.parent.is_dir():
        raise InputError(f"out={str(out)!r}: there is no folder {str(path.parent)!r}; create it, or choose another one")
    return path


@contextmanager
def new_folder(out: str | Path) -> Iterator[tuple[Path, Path]]:
    """Context of a folder that is there in full, or not at all: yields its path, and the folder in which to write.

    Raises:
        InputError: it exists, or cannot be written.
    """
    path = new_path(out)
    building = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(building, ignore_errors=True)  # left by an interrupted call
    try:
        building.mkdir()
        yield path, building
        building.rename(path)
    except OSError as error:
        raise InputError(f"out={str(out)!r}: cannot be written ({error.strerror}); free some space") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
