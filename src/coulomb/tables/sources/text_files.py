"""CSV, TSV, JSON lines and plain text files as sheets."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError, counted
from coulomb.ground.outages import is_outage, unavailable
from coulomb.ground.reading import parse_json
from coulomb.ground.reading.cells import FORMULA
from coulomb.ground.reading.files import read_bytes, read_lines
from coulomb.ground.text import first_few, portable, visible
from coulomb.tables.sheet import Sheet
from coulomb.tables.texts import strings

_LEAST_BLOCK = 2**22  # bytes of a CSV file that are read at once; a row must fit into one block
_LARGEST_BLOCK = 2**30
_MOST = 2**40  # bytes of a file of JSON lines
_MOST_LIST = 2**28  # bytes of a JSON list
_CHUNK = 2**16  # rows of JSON that become Arrow arrays together


def open_text_files(paths: list[Path], name: str) -> Sheet:
    """Opens files of columns by their extension, one of ``TEXT_FILES``; several files are one table.

    Raises:
        InputError: a file cannot be read, or the columns of the files differ.
    """
    parts = []
    for path in paths:
        try:
            parts.append(TEXT_FILES[path.suffix.lower()](path))
        except OSError as error:
            if is_outage(error):
                raise unavailable(path, error) from None
            raise InputError(f"{visible(path)}: cannot be read ({visible(error.strerror or error)})") from None
        if parts[-1].keys() != parts[0].keys():
            raise InputError(
                f"{visible(path)}: its columns differ from the columns of {visible(paths[0])}; give files of one data set"
            )
    columns = {column: _joined([part[column] for part in parts]) for column in parts[0]}
    length = len(next(iter(columns.values()), ()))
    kind = paths[0].suffix.lower().lstrip(".")
    other = next((each for each in (";", "|", "\t") if len(columns) == 1 and each in next(iter(columns))), None)
    hint = (
        ""
        if other is None
        else f"Its fields seem to be separated by {other!r}; save it with commas, or as .tsv with tabs"
    )
    return Sheet(portable(name), kind, length, list(columns), columns.__getitem__, root=paths[0].parent, hint=hint)


def _joined(parts: list[Any]) -> Any:
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    arrow = all(isinstance(part, pa.ChunkedArray) and part.type == parts[0].type for part in parts)
    if arrow:
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
    return [value for part in parts for value in (part.to_pylist() if isinstance(part, pa.ChunkedArray) else part)]


def read_csv(path: Path, delimiter: str, header: list[str] | None = None, quotes: bool = True) -> dict[str, Any]:
    """Returns the columns of a CSV file as strings, without the apostrophes that spreadsheets need before formulas.

    Args:
        path: the file.
        delimiter: between the fields.
        header: names of the columns, if the first line does not have them.
        quotes: whether fields may be in quotes.

    Raises:
        InputError: the file is not UTF-8, a column name occurs twice, or a line has another number of fields.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    first = 0 if header is not None else 1  # row below the header
    header = header or _header(path, delimiter)
    block = _LEAST_BLOCK
    while True:
        try:
            table = csv.read_csv(
                path,
                csv.ReadOptions(block_size=block, column_names=header, skip_rows=0, use_threads=False),
                csv.ParseOptions(delimiter=delimiter, newlines_in_values=quotes, quote_char='"' if quotes else False),
                csv.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string()), check_utf8=True),
            )
            break
        except pa.ArrowInvalid as error:
            if "straddl" in str(error) and block < min(_LARGEST_BLOCK, path.stat().st_size):
                block *= 8
                continue
            require_utf8(path)
            raise InputError(
                f"{visible(path)}: not a readable table ({visible(error)}); put cells that contain {delimiter!r} in quotes"
            ) from None
    columns = {}
    for name in header:
        text = table.column(name).slice(first)
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
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
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


def read_json_lines(path: Path) -> dict[str, Any]:
    """Returns the columns of a file with one JSON object per line, or of a JSON list of objects of at most 256 MiB.

    Keys that an object does not have are missing cells.

    Raises:
        InputError: a line is not a JSON object in UTF-8; the message names it.
    """
    import pyarrow as pa

    chunks: dict[str, list[Any]] = {}
    rows: dict[str, list[Any]] = {}
    done = count = 0

    def flush() -> None:
        nonlocal rows, done
        for name in chunks.keys() | rows.keys():
            values = rows.get(name, [])
            values += [None] * (count - done - len(values))
            earlier = chunks.setdefault(name, [pa.nulls(done, pa.large_string())] if done else [])
            is_text = all(value is None or isinstance(value, str) for value in values)
            earlier.append(strings(values, f"{visible(path)}, key {visible(name)!r}", done) if is_text else values)
        rows, done = {}, count

    order: dict[str, None] = {}
    for value in _json_objects(path):
        for name, cell in value.items():
            cells = rows.setdefault(name, [])
            cells += [None] * (count - done - len(cells))
            cells.append(cell)
        order.update(dict.fromkeys(value))
        count += 1
        if count - done == _CHUNK:
            flush()
    flush()
    if not chunks:
        raise InputError(f"{visible(path)}: {counted(count, 'JSON object')} without keys; the table has no columns")
    return {name: _joined_chunks(chunks[name]) for name in order}


def _json_objects(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        content = read_bytes(path, most=_MOST_LIST, remedy="write one object per line")
        try:
            values = parse_json(content.removeprefix(b"\xef\xbb\xbf"), nonfinite=True)
        except ValueError as error:
            require_utf8(path)
            raise InputError(f"{visible(path)}: not a JSON list ({visible(error)})") from None
        yield from (_json_object(value, path, f"entry {number}") for number, value in enumerate(values))
        return
    for number, line in enumerate(read_lines(path, most=_MOST, remedy="give files with shorter lines"), 1):
        if not line.strip():
            continue
        try:
            value = parse_json(line.removeprefix(b"\xef\xbb\xbf"), nonfinite=True)
        except ValueError as error:
            require_utf8(path)
            raise InputError(
                f"{visible(path)}: line {number} is not a JSON object ({visible(error)}); write one object per line"
            ) from None
        yield _json_object(value, path, f"line {number}")


def _json_object(value: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(
            f'{visible(path)}: {where} is a {type(value).__name__}, not a JSON object such as {{"question": "…"}}'
        )
    return value


def _joined_chunks(parts: list[Any]) -> Any:
    import pyarrow as pa

    if not any(isinstance(part, list) for part in parts):
        return pa.chunked_array(parts, pa.large_string())
    return [value for part in parts for value in (part if isinstance(part, list) else part.to_pylist())]


def read_text(path: Path) -> dict[str, Any]:
    """Returns the lines of a file as the column ``text``. Raises `InputError` if a line is not UTF-8."""
    import pyarrow as pa

    def chunks() -> Iterable[Any]:
        with path.open("rb") as file:
            while lines := file.readlines(2**24):
                yield pa.array([line.decode("utf-8").rstrip("\r\n") for line in lines], pa.large_string())

    try:
        found = list(chunks())
    except UnicodeDecodeError:
        require_utf8(path)
        raise
    if found and found[0][0].as_py().startswith("\ufeff"):
        found[0] = pa.concat_arrays([pa.array([found[0][0].as_py()[1:]], pa.large_string()), found[0].slice(1)])
    return {"text": pa.chunked_array(found, pa.large_string())}


TEXT_FILES: dict[str, Callable[[Path], dict[str, Any]]] = {
    ".csv": partial(read_csv, delimiter=","),
    ".tsv": partial(read_csv, delimiter="\t"),
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
    ".txt": read_text,
}
