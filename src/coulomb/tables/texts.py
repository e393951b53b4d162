"""Texts as cells of a column: strings in one Arrow array."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError


class Texts(Sequence[str]):
    """A sequence of strings in one Arrow array, which takes the size of its characters and 8 bytes per text.

    Args:
        array: strings without nulls, as an array or chunked array of Arrow.
    """

    def __init__(self, array: Any) -> None:
        import pyarrow as pa

        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        wide = [chunk.cast(pa.large_string()) for chunk in chunks]  # offsets of 64 bits: more than 2 GiB of characters
        self.array = wide[0] if len(wide) == 1 else pa.concat_arrays(wide) if wide else pa.array([], pa.large_string())

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[str]: ...
    def __getitem__(self, row: int | slice) -> str | Sequence[str]:
        """Returns the text of a row, or the texts of a slice."""
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        text: str = self.array[int(row)].as_py()
        return text

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), 65536):
            yield from self.array.slice(first, 65536).to_pylist()

    def take(self, rows: npt.NDArray[np.int64]) -> "Texts":
        """Returns the texts of these rows."""
        return self if len(rows) == len(self) and (np.diff(rows) == 1).all() else Texts(self.array.take(rows))


def as_arrow(cells: Any) -> Any:
    """Returns the cells of a column of texts as an Arrow array of strings; null where a text is missing."""
    import pyarrow as pa

    return cells.array if isinstance(cells, Texts) else pa.array(list(cells), pa.large_string(), from_pandas=True)


def strings(values: Sequence[str | None], where: str, first: int = 0) -> Any:
    """Returns Python strings as an Arrow array of strings.

    Args:
        values: the strings; None where a text is missing.
        where: their origin, for errors.
        first: number of the first row, for errors.

    Raises:
        InputError: a string has half of a surrogate pair, as JSON may hold it; the message names its row.
    """
    import pyarrow as pa

    try:
        return pa.array(values, pa.large_string(), from_pandas=True)
    except UnicodeEncodeError:
        for row, value in enumerate(values, first):
            try:
                _ = isinstance(value, str) and value.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"{where}: the text of row {row} has half of a surrogate pair at position {error.start}, which is not "
                    "Unicode; write the data again, or leave out the row"
                ) from None
        raise


def decoded(array: Any, where: str) -> Any:
    """Returns an Arrow array of strings or bytes as strings.

    Raises:
        InputError: a text is not UTF-8; the message names its row.
    """
    import pyarrow as pa

    strings = array.cast(pa.large_binary()).cast(pa.large_string(), safe=False)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(array.cast(pa.large_binary()).to_pylist()):
            try:
                _ = None if value is None else value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{where}: the text of row {row} is not UTF-8 (byte 0x{value[error.start]:02x} at position "
                    f"{error.start}); write the table again in UTF-8, or leave out the row"
                ) from None
        raise
    return strings
