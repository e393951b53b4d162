"""The kind of a column, read from its values: pictures, texts or vectors."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError
from coulomb.ground.reading import parse_json
from coulomb.ground.text import first_few, visible
from coulomb.kinds.image.decode import HEIC_EXTENSIONS, image_extensions
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.pictures import EncodedBytes, PictureRows
from coulomb.tables.source import Source
from coulomb.tables.sources.arrays import ArraySource
from coulomb.tables.sources.files import FileSource, relative_path
from coulomb.tables.sources.objects import ImageListSource
from coulomb.tables.texts import Texts, decoded, strings

SAMPLE = 100  # values from which the kind of a column of strings is read
Places = npt.NDArray[np.int64]


@dataclass
class Recognized:
    """The values of a column as cells of a kind.

    Attributes:
        kind: "image", "text" or "vector".
        cells: `Texts`, a `Source` of images, or an array [M, F].
        at: place among the cells of each entry, int64 [E]; −1 where the entry is missing or empty.
        row: row of each entry, int64 [E] ascending, if rows hold several; None if entry i is that of row i.
        lost: number of entries that cannot be used, and examples, by the reason.
        notes: sentences on what looks like a mistake.
    """

    kind: str
    cells: Any
    at: Places
    row: Places | None = None
    lost: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, entries: Places) -> Any:
        """Returns the cells of these entries, none of which is missing."""
        places = self.at[entries]
        if self.kind == "image":
            return PictureRows(self.cells, places)
        if self.kind == "text":
            return self.cells.take(places)
        whole = len(places) == len(self.cells) and bool((np.diff(places) == 1).all())
        return self.cells if whole else self.cells[places]


@dataclass(frozen=True)
class Asked:
    """A column that is to be recognized.

    Attributes:
        name: of the column.
        kind: as given; None: read from the values.
        table: name of the table, for messages.
        root: the folder that paths are relative to and cannot leave; None: paths are used as given.
        class_names: names of the classes, if the column is known to hold class numbers.
    """

    name: str
    kind: str | None
    table: str
    root: Path | None = None
    class_names: list[str] | None = None

    @property
    def where(self) -> str:
        """The table and the column, for messages."""
        return f"{visible(self.table)}, column {visible(self.name)!r}"

    def require(self, kind: str, what: str) -> str:
        """Returns ``kind``; raises `InputError` if another kind is given for this column."""
        if self.kind not in (None, kind):
            raise InputError(
                f"{self.where}: it holds {what}, not cells of kind {self.kind!r}; leave out ':{self.kind}'"
            )
        return kind


def recognize(values: Any, asked: Asked) -> Recognized:
    """Returns the values of a column as cells of a kind.

    =====================================================================================  =========================
    values                                                                                 kind
    =====================================================================================  =========================
    a `Source`; encoded images; images in memory; strings that are paths of image files    image
    other strings; lists of strings, with several entries per row                          text
    lists of numbers of one length; arrays [N, F]                                          vector
    numbers                                                                                none: it must be given
    =====================================================================================  =========================

    Raises:
        InputError: the values have no kind, or not the given one; or no entry can be used.
    """
    import pyarrow as pa

    if isinstance(values, Source):
        kind = asked.require("image", "pictures")
        if not isinstance(values, PictureRows):
            return require_pictures(Recognized(kind, values, np.arange(len(values))), asked)
        lost = _missing(np.flatnonzero(values.at < 0))
        return require_pictures(_checked(Recognized(kind, values.source, values.at, lost=lost), asked), asked)
    if isinstance(values, list):
        values = _of_objects(values, asked)
    if isinstance(values, np.ndarray):
        return _array(values, asked)
    if isinstance(values, Recognized):
        return values
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
        if isinstance(values, pa.ChunkedArray):  # more than 2 GiB of characters in 32-bit offsets
            wide = [chunk.cast(_wide(chunk.type)) for chunk in values.chunks]
            values = pa.concat_arrays(wide)
    return _arrow(values, asked)


def _wide(kind: Any) -> Any:
    import pyarrow as pa

    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


def _arrow(values: Any, asked: Asked) -> Recognized:
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind = pa.types, values.type
    if types.is_dictionary(kind):
        return _arrow(values.dictionary_decode(), asked)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _strings(decoded(values, asked.where), asked)
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return _encoded(pc.struct_field(values, "bytes"), asked)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return _strings(decoded(values, asked.where), asked) if asked.kind == "text" else _encoded(values, asked)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(values, asked)
    if types.is_null(kind):
        raise InputError(f"{asked.where}: all {len(values)} cells are missing")
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        if types.is_decimal(kind):
            values = values.cast(pa.float64())
        return _numbers(values, asked)
    if asked.kind == "text" and (types.is_temporal(kind)):
        return _strings(values.cast(pa.string()), asked)
    raise InputError(
        f"{asked.where}: values of type {visible(kind)} are neither pictures, texts nor vectors; choose another column"
    )


def _lists(values: Any, asked: Asked) -> Recognized:
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = values.type.value_type
    if pa.types.is_string(inner) or pa.types.is_large_string(inner):
        parents = pc.list_parent_indices(values).to_numpy(zero_copy_only=False).astype(np.int64)
        found = _strings(decoded(pc.list_flatten(values), asked.where), replace_kind(asked, "text"))
        blank, empty = parents[found.at < 0], np.setdiff1d(np.arange(len(values)), parents)
        lost = _missing(np.sort(np.concatenate([blank, empty])))
        return Recognized(asked.require("text", "lists of texts"), found.cells, found.at, parents, lost, found.notes)
    if not (pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_boolean(inner)):
        raise InputError(
            f"{asked.where}: lists of {visible(inner)} are neither texts nor vectors; choose another column"
        )
    kind = asked.require("vector", "lists of numbers")
    lengths = pc.list_value_length(values)
    widths = pc.unique(lengths.drop_null())
    if len(widths) > 1:
        raise InputError(
            f"{asked.where}: its lists have {first_few(sorted(widths.to_pylist()))} numbers; vectors must have one length"
        )
    present = np.flatnonzero(lengths.is_valid().to_numpy(zero_copy_only=False))
    width = widths[0].as_py() if len(widths) else 0
    if not width:
        raise InputError(f"{asked.where}: its lists hold no numbers")
    flat = pc.list_flatten(values.filter(lengths.is_valid())).to_numpy(zero_copy_only=False)
    at = _places(present, len(values))
    return _vectors(_floats(flat).reshape(-1, width), at, kind, asked)


def replace_kind(asked: Asked, kind: str) -> Asked:
    """Returns ``asked`` with another kind."""
    return Asked(asked.name, kind, asked.table, asked.root, asked.class_names)


def _array(values: npt.NDArray[Any], asked: Asked) -> Recognized:
    if values.ndim == 1 and values.dtype.kind in "US":
        import pyarrow as pa

        return _arrow(pa.array(values.astype(str).tolist(), pa.large_string()), asked)
    if values.ndim == 1 and values.dtype.kind == "O":
        return recognize(values.tolist(), asked)
    if values.dtype.kind not in "iufb" or values.ndim == 0:
        raise InputError(f"{asked.where}: an array of type {values.dtype} and shape {list(values.shape)} is no column")
    if values.ndim == 1:
        import pyarrow as pa

        return _numbers(pa.array(values, from_pandas=False), asked)
    is_image = values.ndim == 4 or (
        values.ndim == 3 and (values.dtype in (np.uint8, np.uint16) or asked.kind == "image")
    )
    if is_image:
        kind = asked.require("image", f"pictures of shape {list(values.shape[1:])}")
        return Recognized(kind, ArraySource(values, name=asked.where), np.arange(len(values)))
    if values.ndim > 2:
        raise InputError(
            f"{asked.where}: an array of shape {list(values.shape)} may hold gray pictures or matrices; give "
            f"'{asked.name}:image', or vectors [N, F]"
        )
    kind = asked.require("vector", "an array of numbers")
    return _vectors(_floats(values), np.arange(len(values)), kind, asked)


def _floats(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if values.dtype.kind == "f" else values.astype(np.float32)


def _vectors(values: npt.NDArray[Any], at: Places, kind: str, asked: Asked) -> Recognized:
    if not values.shape[1]:
        raise InputError(f"{asked.where}: its vectors hold no numbers")
    missing = np.flatnonzero(at < 0)
    finite = np.ones(len(values), dtype=bool)
    step = max(1, 2**22 // values.shape[1])
    for first in range(0, len(values), step):  # a memory map is not read at once
        finite[first : first + step] = np.isfinite(values[first : first + step]).all(axis=1)
    bad = np.flatnonzero((at >= 0) & ~finite[at])
    at = at.copy()
    at[bad] = -1
    lost = _missing(missing)
    if len(bad):
        lost["NaN or infinite values"] = _counted(bad)
    return _checked(Recognized(kind, values, at, lost=lost), asked)


def _numbers(values: Any, asked: Asked) -> Recognized:
    import pyarrow as pa
    import pyarrow.compute as pc

    if asked.kind == "text":
        if asked.class_names is not None:
            names = pa.array([*asked.class_names, None], pa.large_string())
            numbers = pc.fill_null(values, -1).to_numpy(zero_copy_only=False)
            inside = (numbers >= 0) & (numbers < len(asked.class_names))
            return _strings(names.take(pa.array(np.where(inside, numbers, len(asked.class_names)))), asked)
        return _strings(values.cast(pa.large_string()), asked)
    if asked.kind != "vector":
        asked.require("vector", "numbers")
        what = "class numbers" if asked.class_names is not None else "plain numbers"
        raise InputError(
            f"{asked.where}: it holds {what}, which may be labels (--labels), texts ('{asked.name}:text') or vectors of one "
            f"value ('{asked.name}:vector'); say which, or join columns of numbers to vectors ('{asked.name}+OTHER')"
        )
    present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    at = _places(present, len(values))
    flat = values.drop_null().cast(pa.float64() if not pa.types.is_floating(values.type) else values.type)
    return _vectors(flat.to_numpy(zero_copy_only=False)[:, None].astype(np.float32), at, "vector", asked)


def _strings(values: Any, asked: Asked) -> Recognized:
    """Recognizes an Arrow array of strings: texts, paths of images, or numbers in a file that has no types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True).to_numpy(zero_copy_only=False)
    present = np.flatnonzero(~blank)
    if not len(present):
        raise InputError(f"{asked.where}: all {len(values)} cells are missing or empty")
    sample = values.take(pa.array(present[:SAMPLE])).to_pylist()
    if asked.kind == "image" or (asked.kind is None and all(names_image(text) for text in sample)):
        return _paths(values, present, sample, asked)
    if asked.kind in (None, "vector") and all(_is_number(text) for text in sample):
        try:
            numbers = values.take(pa.array(present)).cast(pa.float64())
        except pa.ArrowInvalid:
            if asked.kind == "vector":
                raise InputError(f"{asked.where}: not every cell is a number; clean the column first") from None
        else:
            spread = np.full(len(values), np.nan)
            spread[present] = numbers.to_numpy(zero_copy_only=False)
            return _numbers(pa.array(spread, mask=blank), asked)
    if asked.kind == "vector" and all(text.strip()[:1] + text.strip()[-1:] == "[]" for text in sample):
        return recognize([_numbers_of(text, row, asked) for row, text in enumerate(values.to_pylist())], asked)
    kind = asked.require("text", "texts")
    at = np.where(blank, -1, np.arange(len(values)))
    texts = Texts(values.fill_null("") if values.null_count else values)
    lost = _missing(np.flatnonzero(blank))
    notes = []
    if asked.kind == "text" and all(names_image(text) for text in sample):
        notes.append(f"{visible(asked.name)}: its texts are names of image files, such as {visible(sample[0])}.")
    return Recognized(kind, texts, at, lost=lost, notes=notes)


def _numbers_of(text: str | None, row: int, asked: Asked) -> Any:
    """Returns the list of numbers that a cell of a text file holds, such as ``[0.5, 1]``; None for an empty cell."""
    if text is None or not text.strip():
        return None
    try:
        value = parse_json(text.encode(), nonfinite=True)
        return [float(each) for each in value]
    except (ValueError, TypeError):
        raise InputError(f"{asked.where}: row {row} is not a list of numbers, such as [0.5, 1.25]") from None


def names_image(text: str) -> bool:
    """Returns True if a string ends like the name of an image file."""
    ending = os.path.splitext(text)[1].lower()  # noqa: PTH122  a Path object for each of many strings would be slow
    return (ending in image_extensions() or ending in HEIC_EXTENSIONS) and "\n" not in text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _paths(values: Any, present: Places, sample: Sequence[str], asked: Asked) -> Recognized:
    """Recognizes strings as paths of image files. Files that do not exist are counted."""
    import pyarrow as pa

    coded = values.take(pa.array(present)).dictionary_encode()
    given = coded.dictionary.to_pylist()
    first = present[np.unique(coded.indices.to_numpy(zero_copy_only=False), return_index=True)[1]].tolist()
    if asked.root is None:
        paths = [str(Path(text).expanduser()) for text in given]
        exists = [os.path.isfile(path) for path in paths]  # noqa: PTH113
    else:
        root = asked.root.resolve()
        paths = [relative_path(text, row, root, asked.where) for row, text in zip(first, given, strict=True)]
        exists = [os.path.isfile(f"{root}{os.sep}{path}") for path in paths]  # noqa: PTH113
    if not any(exists):
        below = "" if asked.root is None else f" below {visible(asked.root)}"
        raise InputError(
            f"{asked.where}: none of its {len(given)} files exists{below}, e.g. {visible(sample[0])}; give root= (the "
            f"folder that the paths are relative to), or '{asked.name}:text' if these are texts"
        )
    distinct = {
        path: number for number, path in enumerate(dict.fromkeys(p for p, e in zip(paths, exists, strict=True) if e))
    }
    number = np.array([distinct.get(path, -1) for path in paths], dtype=np.int64)
    at = np.full(len(values), -1, dtype=np.int64)
    at[present] = number[coded.indices.to_numpy(zero_copy_only=False)]
    lost = _missing(np.setdiff1d(np.arange(len(values)), present))
    if absent := [text for text, there in zip(given, exists, strict=True) if not there]:
        lost["its file does not exist"] = int((at[present] < 0).sum()), absent[:5]
    source: Source
    if asked.root is None:
        source = ImageListSource(list(distinct))
    else:
        source = FileSource(asked.root, list(distinct), kind="file list", name=asked.table)
    return Recognized("image", source, at, lost=lost)


def _encoded(values: Any, asked: Asked) -> Recognized:
    """Recognizes encoded images in an Arrow array of bytes."""
    kind = asked.require("image", "pictures")
    missing = values.is_null().to_numpy(zero_copy_only=False)
    at = np.where(missing, -1, np.arange(len(values)))
    found = Recognized(kind, EncodedBytes(values, asked.table), at, lost=_missing(np.flatnonzero(missing)))
    return require_pictures(_checked(found, asked), asked)


def require_pictures(found: Recognized, asked: Asked) -> Recognized:
    """Returns a column of bytes; raises `InputError` if none of its first few cells is an image."""
    reasons = []
    for place in found.at[found.at >= 0][:5].tolist():
        try:
            found.cells.header(place)
        except CorruptImage as error:
            reasons.append(error.reason)
        else:
            return found
    if reasons:
        remedy = "" if asked.kind == "image" else f", or '{asked.name}:text' if they are texts"
        raise InputError(
            f"{asked.where}: it holds bytes that are no images ({reasons[0]}); choose another column{remedy}"
        )
    return found


def _checked(found: Recognized, asked: Asked) -> Recognized:
    if not (found.at >= 0).any():
        raise InputError(f"{asked.where}: no cell can be used: {', '.join(found.lost)}")
    return found


def _of_objects(values: list[Any], asked: Asked) -> Any:
    """Returns a list of Python objects as an Arrow array, an array or images."""
    import pyarrow as pa

    first = next((value for value in values if not _is_missing(value)), None)
    if first is None:
        raise InputError(f"{asked.where}: all {len(values)} cells are missing")
    several = isinstance(first, list | tuple)
    if several and any(isinstance(each, str) for each in first):
        values = [None if value is None else list(value) for value in values]
    elif several or getattr(first, "ndim", 0) == 1:
        return _stacked(values, asked)
    elif isinstance(first, np.generic):
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
    elif not isinstance(first, str | bytes | int | float) and not (isinstance(first, dict) and "bytes" in first):
        return _objects(values, asked)
    try:
        return pa.array(values, from_pandas=True)
    except UnicodeEncodeError:
        flat = [text for value in values for text in (value if isinstance(value, list) else [value])]
        return strings(flat, asked.where)
    except (pa.ArrowException, TypeError, OverflowError):
        kinds = {type(value).__name__: row for row, value in reversed(list(enumerate(values))) if value is not None}
        listed = ", ".join(f"{kind} in row {row}" for kind, row in sorted(kinds.items(), key=lambda entry: entry[1]))
        raise InputError(
            f"{asked.where}: cells of several types ({listed}); make them all texts, or all numbers"
        ) from None


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _stacked(values: list[Any], asked: Asked) -> Recognized:
    present = [row for row, value in enumerate(values) if value is not None and np.ndim(value)]
    try:
        rows = np.stack([np.asarray(values[row]) for row in present])
    except ValueError:
        sizes = sorted({np.asarray(values[row]).size for row in present})
        raise InputError(
            f"{asked.where}: its lists have {first_few(sizes)} numbers; vectors must have one length"
        ) from None
    if rows.dtype.kind not in "iufb" or rows.ndim != 2:
        raise InputError(
            f"{asked.where}: lists of type {rows.dtype} are neither texts nor vectors; choose another column"
        )
    at = _places(present, len(values))
    return _vectors(_floats(rows), at, asked.require("vector", "lists of numbers"), asked)


def _objects(values: list[Any], asked: Asked) -> Recognized:
    """Recognizes images in memory: Pillow images, arrays, tensors and paths."""
    kind = asked.require(
        "image", f"objects of type {type(next(filter(lambda each: each is not None, values))).__name__}"
    )
    present = [row for row, value in enumerate(values) if value is not None]
    at = _places(present, len(values))
    lost = _missing(np.flatnonzero(at < 0))
    try:
        source = ImageListSource([values[row] for row in present])
    except InputError as error:
        first = type(values[present[0]]).__name__
        raise InputError(
            f"{asked.where}: cells of type {first} are neither pictures, texts nor vectors ({error}); choose another column"
        ) from None
    return Recognized(kind, source, at, lost=lost)


def _places(present: Places | list[int], count: int) -> Places:
    """Returns the place among the present entries of each of ``count`` entries, −1 for the others."""
    at = np.full(count, -1, dtype=np.int64)
    at[present] = np.arange(len(present))
    return at


def _missing(rows: Places) -> dict[str, tuple[int, list[str]]]:
    """Returns the entry of ``lost`` for rows without a value; empty if there are none."""
    return {"missing or empty": _counted(rows)} if len(rows) else {}


def _counted(rows: Places) -> tuple[int, list[str]]:
    """Returns the number of rows, and the first few as examples."""
    return len(rows), [f"row {row}" for row in rows[:5].tolist()]
