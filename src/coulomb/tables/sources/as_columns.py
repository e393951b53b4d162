"""Opens whatever holds columns as a :class:`~coulomb.tables.sheet.Sheet`: finds the module of its place."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, portable, visible
from coulomb.tables.shards.addresses import (
    is_local,
    matching_files,
    named_shards,
    names_shards,
    require_one_part,
    shard_suffixes,
)
from coulomb.tables.sheet import Sheet
from coulomb.tables.sources.folder import open_image_folder, scan_folder
from coulomb.tables.sources.frames import collected, is_frame, open_arrow, open_pandas, open_polars
from coulomb.tables.sources.hub import HUB_NAME, open_dataset, open_hub_sheet
from coulomb.tables.sources.memory import open_list, open_mapping, open_table
from coulomb.tables.sources.parquet import describe_sheet, open_parquet_sheet
from coulomb.tables.sources.remote_parquet import remote_footers
from coulomb.tables.sources.tar import open_tar_sheet
from coulomb.tables.sources.text_files import TEXT_FILES, open_text_files
from coulomb.tables.table import Table

_KINDS = (".parquet", ".tar", *TEXT_FILES)


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
    if isinstance(data, Table):
        return open_table(data)
    if library == "datasets":
        return open_dataset(data)
    if library == "pyarrow" and hasattr(data, "column_names"):
        return open_arrow(data)
    if library == "pandas" and hasattr(data, "columns"):
        return open_pandas(data)
    if library == "polars" and is_frame(data):
        return open_polars(collected(data))
    if isinstance(data, Mapping):
        return open_mapping(data)
    if isinstance(data, list | tuple):
        return open_list(list(data), asked)
    raise InputError(
        f"data is a {type(data).__name__}; give a file, a folder, a dictionary of lists, a list of rows, or a table of "
        "pandas, polars, pyarrow or datasets"
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
        if names_shards(text):
            return _open_addresses(text)
        if "*" in path.name and path.parent.is_dir():
            files = matching_files(path)
            if not files:
                raise InputError(f"{visible(text)}: no file matches this pattern")
            return _open_files(files, portable(path.name))
    except PermissionError as error:
        raise InputError(f"{visible(error.filename or text)}: permission denied") from None
    if text.startswith("hub:") or (HUB_NAME.fullmatch(text) and path.suffix.lower() not in _KINDS):
        return open_hub_sheet(text.removeprefix("hub:"))
    raise InputError(f"{visible(text)}: no such file or folder (a hub data set is user/name or hub:name)")


def _open_directory(path: Path) -> Sheet:
    scan = scan_folder(path)
    name = portable(path.resolve().name)
    if scan.images:
        return open_image_folder(path, scan)
    if scan.parquet:
        return _open_files([path / shard for shard in scan.parquet], name)
    if tars := matching_files(path / "*.tar"):
        return open_tar_sheet([str(tar) for tar in tars], name)
    tables = [path / text for text in scan.texts if Path(text).suffix.lower() in TEXT_FILES]
    if tables:
        return _open_files(tables, name)
    raise InputError(
        f"{visible(path)}: neither images nor tables in this folder ({', '.join(_KINDS)}). {' '.join(scan.notes())}".rstrip()
    )


def _open_addresses(text: str) -> Sheet:
    """Opens shards given by URLs, braces or the names of tar files."""
    addresses = named_shards(text)
    if is_local(addresses):
        return _open_files([Path(each) for each in addresses], portable(Path(text).name))
    suffixes = shard_suffixes(addresses)
    name = portable(text.rpartition("/")[2])
    if suffixes == {"tar"}:
        return open_tar_sheet(addresses, name)
    if suffixes == {"parquet"}:
        kind, footers = remote_footers(addresses)
        return describe_sheet(kind, addresses, footers, name)
    raise InputError(
        f"{visible(text)}: files on a server are .tar or .parquet, not {first_few(sorted(suffixes))}; download them first"
    )


def _open_files(files: list[Path], name: str) -> Sheet:
    suffixes = {path.suffix.lower() for path in files}
    require_one_part(files, name)
    if len(suffixes) > 1:
        raise InputError(f"{visible(name)}: files of several kinds ({first_few(sorted(suffixes))}); give one kind")
    suffix = suffixes.pop()
    if irregular := [each for each in files if not each.is_file()]:
        raise InputError(f"{visible(irregular[0])}: not a regular file")
    if suffix == ".parquet":
        return open_parquet_sheet(files, name)
    if suffix == ".tar":
        return open_tar_sheet([str(each) for each in files], name)
    if suffix in TEXT_FILES:
        return open_text_files(files, name)
    raise InputError(f"{visible(files[0])}: not a table; {', '.join(_KINDS)} can be opened")
