"""Opens whatever holds columns as a :class:`~coulomb.tables.sheets.sheet.Sheet`; there is one module per kind of source."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, natural_key, portable, visible
from coulomb.tables.sheets.memory import open_arrow, open_list, open_mapping, open_pandas
from coulomb.tables.sheets.parquet import open_parquet_sheet
from coulomb.tables.sheets.sheet import Sheet
from coulomb.tables.sheets.text_files import TEXT_FILES, open_text_file
from coulomb.tables.sources.files import PARTS

__all__ = ["Sheet", "open_sheet"]


def open_sheet(data: Any, asked: Sequence[str]) -> Sheet:
    """Opens the columns of a data set, see `coulomb.tables.columns.open_columns`.

    Args:
        data: the data set.
        asked: names of the columns that will be used; they name the cells of rows that are tuples.

    Raises:
        InputError: ``data`` cannot be opened.
    """
    sheet = _open_named(data) if isinstance(data, str | Path) else _open_object(data, asked)
    if not sheet.length:
        raise InputError(f"{visible(sheet.name)}: the table has no rows")
    return sheet


def _open_object(data: Any, asked: Sequence[str]) -> Sheet:
    library = type(data).__module__.split(".")[0]
    if library == "pyarrow" and hasattr(data, "column_names"):
        return open_arrow(data)
    if library == "pandas" and hasattr(data, "columns"):
        return open_pandas(data)
    if isinstance(data, Mapping):
        return open_mapping(data)
    if isinstance(data, list | tuple):
        return open_list(list(data), asked)
    raise InputError(
        f"data is a {type(data).__name__}; give a file, a folder, a dictionary of lists, a list of rows, or a table of "
        "pandas, pyarrow or datasets"
    )


def _open_named(data: str | Path) -> Sheet:
    text = str(data)
    path = Path(text).expanduser()
    if not text or "\0" in text:
        raise InputError(f"data={visible(text)!r} is not a path; give a file or a folder")
    try:
        if path.is_dir():
            return _open_directory(path)
        if path.exists():
            return _open_files([path], portable(path.name))
    except PermissionError:
        raise InputError(f"{visible(text)}: permission denied") from None
    if "*" in path.name and path.parent.is_dir():
        files = sorted((each for each in path.parent.glob(path.name) if each.is_file()), key=_natural_name)
        if not files:
            raise InputError(f"{visible(text)}: no file matches this pattern")
        return _open_files(files, portable(path.name))
    raise InputError(f"{visible(text)}: no such file or folder")


def _natural_name(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    return natural_key(path.name)


def _open_directory(path: Path) -> Sheet:
    shards = sorted((each for each in path.rglob("*.parquet") if each.is_file()), key=_natural_name)
    if shards:
        return _open_files(shards, portable(path.resolve().name))
    raise InputError(f"{visible(path)}: no Parquet files in this folder")


def _open_files(files: list[Path], name: str) -> Sheet:
    suffixes = {path.suffix.lower() for path in files}
    if suffixes == {".parquet"}:
        parts = sorted({part for file in files if (part := re.split(r"[-_.]", file.name.lower())[0]) in PARTS})
        if len(parts) > 1:
            raise InputError(
                f"{visible(name)}: shards of several parts of a data set ({first_few(parts)}); "
                f"give one, for example {visible(files[0].parent)}/{parts[-1]}-*.parquet"
            )
        return open_parquet_sheet(files, name)
    if len(files) == 1 and suffixes <= set(TEXT_FILES) and files[0].is_file():
        return open_text_file(files[0])
    known = [".parquet", *TEXT_FILES]
    raise InputError(f"{visible(files[0])}: not a table ({', '.join(known)} can be opened)")
