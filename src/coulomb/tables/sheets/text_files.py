"""CSV, TSV, JSON lines and plain text files as sheets."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading.cells import FORMULA
from coulomb.ground.text import first_few, portable, visible
from coulomb.tables.sheets.sheet import Sheet

_LEAST_BLOCK = 2**22  # bytes of a CSV file that are read at once; a row must fit into one block
_LARGEST_BLOCK = 2**30


def open_text_file(path: Path) -> Sheet:
    """Opens a file of columns by its extension, one of ``TEXT_FILES``."""
    columns = TEXT_FILES[path.suffix.lower()](path)
    length = len(next(iter(columns.values())))
    return Sheet(
        portable(path.name),
        path.suffix.lower().lstrip("."),
        length,
        list(columns),
        columns.__getitem__,
        root=path.parent,
    )


def read_csv(path: Path, delimiter: str) -> dict[str, Any]:
    """Returns the columns of a CSV file as strings, without the apostrophes that spreadsheets need before formulas.

    Raises:
        InputError: the file is not UTF-8, a column name occurs twice, or a line has another number of fields.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    header = _header(path, delimiter)
    block = _LEAST_BLOCK
    while True:
        try:
            table = csv.read_csv(
                path,
                csv.ReadOptions(block_size=block, column_names=header, skip_rows=0, use_threads=False),
                csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                csv.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string()), check_utf8=True),
            )
            break
        except pa.ArrowInvalid as error:
            if "straddl" in str(error) and block < min(_LARGEST_BLOCK, path.stat().st_size):
                block *= 8
                continue
            require_utf8(path)
            raise InputError(f"{visible(path)}: not a readable table ({visible(error)})") from None
    columns = {}
    for name in header:
        text = table.column(name).slice(1)  # below the header
        columns[name] = pc.if_else(
            pc.match_substring_regex(text, "^'" + FORMULA.removeprefix("^")), pc.utf8_slice_codeunits(text, 1), text
        )
    return columns


def _header(path: Path, delimiter: str) -> list[str]:
    import csv

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = [name.strip() for name in next(csv.reader(file, delimiter=delimiter), [])]
    except UnicodeDecodeError:
        require_utf8(path)
        raise
    except csv.Error as error:
        raise InputError(f"{visible(path)}: not a readable table ({visible(error)})") from None
    if not header:
        raise InputError(f"{visible(path)}: the table is empty; its first line must name the columns")
    if repeated := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise InputError(f"{visible(path)}: column {first_few(repeated)} occurs more than once; rename one of them")
    return header


def require_utf8(path: Path) -> None:
    """Raises `InputError` if a line of a file is not UTF-8; the message names the line."""
    with path.open("rb") as file:
        if (start := file.read(2)) in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{visible(path)}: the file is UTF-16; save it as UTF-8")
        file.seek(0)
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{visible(path)}: line {number} is not UTF-8 (byte 0x{line[error.start]:02x} at position "
                    f"{error.start}); save the file as UTF-8"
                ) from None
    del start


TEXT_FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".csv": partial(read_csv, delimiter=","),
    ".tsv": partial(read_csv, delimiter="\t"),
}
