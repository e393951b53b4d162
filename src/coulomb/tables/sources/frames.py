"""Data frames of pandas and polars, and tables of Arrow: their images (paths, bytes, pictures or arrays), or their columns."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.decode import decode, read_bands, read_header
from coulomb.kinds.image.picture import CorruptImage, Header, Picture, array_header
from coulomb.tables.labels import choose_label_column, read_labels
from coulomb.tables.sheet import Sheet
from coulomb.tables.source import Labels, Source
from coulomb.tables.sources.files import PATH_COLUMNS, FileSource, relative_path
from coulomb.tables.sources.objects import as_picture
from coulomb.tables.sources.parquet import IMAGE_COLUMNS

NAME = "data frame"
CELL_COLUMNS = (*IMAGE_COLUMNS, "picture", "photo", "bytes")


def is_frame(data: Any) -> bool:
    """Returns True for a data frame of pandas or polars, lazy or not, and for a table of Arrow."""
    library = type(data).__module__.split(".")[0]
    return library in ("pandas", "polars", "pyarrow") and type(data).__name__ in ("DataFrame", "LazyFrame", "Table")


def is_series(data: Any) -> bool:
    """Returns True for one column of values: of pandas, polars, or a ``datasets.Dataset``."""
    library = type(data).__module__.split(".")[0]
    return library in ("pandas", "polars", "datasets") and type(data).__name__ in ("Series", "Column")


def collected(frame: Any) -> Any:
    """Returns the rows of a lazy frame of polars; other frames as they are."""
    return frame.collect() if type(frame).__name__ == "LazyFrame" else frame


def open_frame(frame: Any, *, label_column: str | None = None, root: Path | None = None) -> Source:
    """Opens the images of a data frame.

    The column of images is the first with a name of ``CELL_COLUMNS`` or ``PATH_COLUMNS``. Its cells are paths, encoded bytes,
    Pillow images, arrays or tensors, or dictionaries with ``bytes`` as in ``datasets``.

    Args:
        frame: of pandas or polars, or a table of Arrow.
        label_column: by default the first with a usual name, see `choose_label_column`.
        root: the folder that paths are relative to and cannot leave; default: the current folder for relative paths, the
            folder that contains all files for absolute ones.

    Raises:
        InputError: there is no column of images, a cell is none, a path leads outside ``root``, or no file exists.
    """
    columns = _columns(collected(frame))
    image = next((name for name in (*CELL_COLUMNS, *PATH_COLUMNS) if name in columns), None)
    if image is None:
        raise InputError(
            f"{NAME}: no column of images among {first_few(list(columns))}; call one of them 'image' or 'path'"
        )
    cells = columns[image]
    if not cells:
        raise InputError(f"{NAME}: has no rows")
    chosen = choose_label_column(list(columns), label_column, (), NAME)
    labels, names = None, None
    if chosen is not None:
        labels, names = read_labels(columns[chosen], len(cells), f"{NAME}, column {visible(chosen)}")
    rest = {name: values for name, values in columns.items() if name not in (image, chosen)}
    if any(isinstance(cell, str | Path) for cell in cells):
        return _files(cells, root, labels, names, rest)
    return FrameSource(cells, labels, names, rest, column=image)


def _columns(frame: Any) -> dict[str, list[Any]]:
    """Returns the columns as lists, with None for missing values."""
    library = type(frame).__module__.split(".")[0]
    if library == "polars":
        return {name: frame[name].to_list() for name in frame.columns}
    if library == "pyarrow":
        return {name: frame.column(name).to_pylist() for name in frame.column_names}
    columns: dict[str, list[Any]] = {}
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        pairs = zip(column.tolist(), column.isna().tolist(), strict=True)
        columns[str(name)] = [None if missing is True else value for value, missing in pairs]
    return columns


def _files(
    cells: Sequence[Any],
    root: Path | None,
    labels: Labels | None,
    names: list[str] | None,
    rest: dict[str, list[Any]],
) -> FileSource:
    paths = [str(cell) if isinstance(cell, Path) else cell for cell in cells]
    if root is None:
        absolute = [os.path.dirname(path) for path in paths if isinstance(path, str) and Path(path).is_absolute()]  # noqa: PTH120
        root = Path(os.path.commonpath(absolute)) if len(absolute) == len(paths) else Path()
    folder = root.resolve()
    relative = [relative_path(path, row, folder, NAME) for row, path in enumerate(paths)]
    if not any((folder / path).exists() for path in relative[:100]):
        raise InputError(
            f"{NAME}: none of the first {min(100, len(relative))} files exists, e.g. {visible(folder / relative[0])}; paths "
            "are relative to the current folder unless root= is given"
        )
    return FileSource(
        folder, relative, kind="file list", name=NAME, labels=labels, class_names=names, columns=lambda: rest
    )


class FrameSource(Source):
    """The images in the cells of a data frame, in memory: encoded bytes, Pillow images, arrays [H, W, C], tensors [C, H, W].

    Missing cells are corrupt images.
    """

    kind, name = NAME, NAME

    def __init__(
        self,
        cells: Sequence[Any],
        labels: Labels | None,
        class_names: list[str] | None,
        rest: dict[str, list[Any]],
        *,
        column: str,
    ) -> None:
        self.cells = [cell.get("bytes") if isinstance(cell, dict) else cell for cell in cells]
        self.labels, self.class_names, self.rest, self.column = labels, class_names, rest, column

    def __len__(self) -> int:
        return len(self.cells)

    def item_id(self, index: int) -> str:
        """Returns the number of the row, with leading zeros."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns other than images and labels."""
        return self.rest

    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image, a JPEG possibly decoded smaller, and its original width/height."""
        cell, row = self._cell(index), self.item_id(index)
        if isinstance(cell, bytes):
            return decode(cell, row, at_least=at_least)
        image = as_picture(cell, row)
        return image, image.shape[1] / image.shape[0]

    def bands(self, index: int) -> Picture:
        """Returns all channels of an image, of an encoded one with their stored values."""
        cell, row = self._cell(index), self.item_id(index)
        return read_bands(cell, row) if isinstance(cell, bytes) else as_picture(cell, row)

    def header(self, index: int) -> Header:
        """Returns size and mode, of encoded images without decoding their pixels."""
        cell = self._cell(index)
        return read_header(cell, self.item_id(index)) if isinstance(cell, bytes) else array_header(self.image(index))

    def content(self, index: int) -> bytes | Path:
        """Returns the encoded bytes, or the pixels."""
        cell = self._cell(index)
        return cell if isinstance(cell, bytes) else self.image(index).tobytes()

    def _cell(self, index: int) -> Any:
        cell = self.cells[index]
        if cell is None:
            raise CorruptImage(self.item_id(index), f"no image in the column {visible(self.column)!r}")
        return bytes(cell) if isinstance(cell, bytearray | memoryview) else cell


def open_arrow(table: Any, name: str = "arrow") -> Sheet:
    """Opens the columns of a table of Arrow."""
    _require_distinct(table.column_names, name)
    return Sheet(name, "arrow", table.num_rows, list(table.column_names), table.column)


def open_pandas(frame: Any) -> Sheet:
    """Opens the columns of a data frame of pandas; its index is left out."""
    names = [str(name) for name in frame.columns]
    _require_distinct(names, "data frame")

    def read(name: str) -> Any:
        import pyarrow as pa

        column = frame.iloc[:, names.index(name)]
        if column.dtype.kind in "iufb":
            return column.to_numpy()
        try:
            return pa.chunked_array([pa.Array.from_pandas(column)])
        except (pa.ArrowException, TypeError, UnicodeEncodeError):  # images, arrays, or values of several types
            missing = column.isna().tolist()
            return [None if absent is True else value for value, absent in zip(column, missing, strict=True)]

    return Sheet("data frame", "pandas", len(frame), names, read)


def open_polars(frame: Any) -> Sheet:
    """Opens the columns of a data frame of polars."""
    objects = [name for name, kind in frame.schema.items() if str(kind) == "Object"]  # images, which Arrow has not
    table = frame.drop(objects).to_arrow()

    def read(name: str) -> Any:
        return frame[name].to_list() if name in objects else table.column(name)

    return Sheet("data frame", "polars", frame.height, list(frame.columns), read)


def _require_distinct(names: Sequence[str], where: str) -> None:
    if repeated := [name for name in dict.fromkeys(names) if list(names).count(name) > 1]:
        raise InputError(f"{visible(where)}: column {first_few(repeated)} occurs more than once; rename one of them")
