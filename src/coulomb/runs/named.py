"""What a file of a run folder names but only the caller of a command may allow: code to run, files to write elsewhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coulomb.errors import InputError
from coulomb.models.user_code import is_own_file

BANK = "bank_path"  # the only option of a method that names a file to write


def require_named(
    where: Path, options: Mapping[str, Any], given: Mapping[str, Any], folder: Path | None = None
) -> None:
    """Refuses code outside the package, and a memory bank outside ``folder``, that the caller did not name in this call.

    Args:
        where: the file that ``options`` were read from, for the message.
        options: of a run: ``method``, ``encoder``, ``method_options``.
        given: the same options as passed by the caller, in this very call; None or missing where not.
        folder: the run folder, in which a bank may be written; None for a run that does not exist yet.

    Raises:
        InputError: the message says what to pass.
    """
    for name in ("method", "encoder"):
        value = options.get(name)
        if isinstance(value, str) and is_own_file(value) and given.get(name) is None:
            raise InputError(
                f"{where}: {name}={value!r} is code outside coulomb, which runs only if you name it yourself; "
                f"if you trust that file, add --{name} {value} ({name}={value!r} in Python)"
            )
    bank = bank_of(options)
    if bank is None or bank_of(given) is not None or (folder is not None and _inside(Path(str(bank)), folder)):
        return
    raise InputError(
        f"{where}: {BANK}={bank!r} is a file outside the run folder, which is written only if you name it yourself; "
        f"add --option {BANK}={bank} (method_options={{{BANK!r}: {bank!r}}} in Python)"
    )


def bank_of(options: Mapping[str, Any]) -> Any:
    """The file of a mapped memory bank among ``options``, or None."""
    return (options.get("method_options") or {}).get(BANK)


def _inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
