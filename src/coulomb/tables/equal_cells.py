"""Equal cells: numbers that are equal exactly where cells of a column are, also across tables."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.texts import as_arrow

Ids = npt.NDArray[np.int64]
CHUNK = 2**24  # bytes of a file, or of vectors, that are read at once


def equal_cells(kind: str, parts: Sequence[Any]) -> list[Ids]:
    """Returns an id for each cell of a column, which equal cells share.

    ==========  ====================================================================================================
    ``kind``    cells are equal if they are
    ==========  ====================================================================================================
    ``text``    the same string after Unicode normalization (NFC) and without white space at both ends
    ``image``   the same file, or files or cells with the same stored bytes. Images of a remote source are compared by
                their place, because their bytes would have to be downloaded
    ``vector``  the same values; 0 and −0 are equal, and so are NaN and NaN
    ==========  ====================================================================================================

    A missing text is equal to no other.

    Args:
        kind: kind of the column.
        parts: the cells of the column in each of several tables.

    Returns:
        Ids of the cells of each table, int64 [N], numbered 0, 1, … in the order of first occurrence.
    """
    keys = {"text": _texts, "image": _images, "vector": _vectors}[kind](parts)
    ids = _numbered(keys)
    return np.split(ids, np.cumsum([len(part) for part in parts])[:-1])


def _numbered(keys: Any) -> Ids:
    """Returns numbers of the values of an Arrow array; nulls are distinct."""
    coded = keys.dictionary_encode()
    ids = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    missing = np.flatnonzero(ids < 0)
    ids[missing] = len(coded.dictionary) + np.arange(len(missing))
    return ids


def _texts(parts: Sequence[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.concat_arrays([as_arrow(cells) for cells in parts])
    return pc.utf8_trim_whitespace(pc.utf8_normalize(texts, form="NFC"))


def _vectors(parts: Sequence[Any]) -> Any:
    import pyarrow as pa

    arrays = [np.asarray(cells) if isinstance(cells, list) else cells for cells in parts]
    dtype = np.result_type(*(array.dtype for array in arrays))
    digests = []
    for array in arrays:
        step = max(1, CHUNK // max(1, array[:1].nbytes))
        for first in range(0, len(array), step):
            rows = np.array(array[first : first + step], dtype=dtype).reshape(-1, array[:1].size)
            if dtype.kind == "f":
                rows += 0.0  # −0 becomes 0
                rows[np.isnan(rows)] = np.nan
            digests += [_digest(row.tobytes()) for row in rows]
    return pa.array(digests, pa.binary(16))


def _images(parts: Sequence[Any]) -> Any:
    import pyarrow as pa

    # Rows that share an image of a source read it once. Files are read only if another image has their size.
    places: list[tuple[Ids, Ids]] = []  # distinct images of each part, and the image of each row among these
    contents: list[bytes | tuple[int, Path] | None] = []  # digest of the bytes, or size and file
    sizes: Counter[int] = Counter()
    for part, cells in enumerate(parts):
        source, at = (cells.source, cells.at) if hasattr(cells, "at") else (cells, None)
        distinct, inverse = np.unique(np.arange(len(cells)) if at is None else at, return_inverse=True)
        places.append((distinct, inverse + len(contents)))
        for index in distinct.tolist():
            size, content = _content(source, index, part)
            sizes[size] += 1
            contents.append(content)
    digests = [_of_file(each, sizes) if isinstance(each, tuple) else each for each in contents]
    return pa.array([digests[row] for _, rows in places for row in rows.tolist()], pa.binary(16))


def _content(source: Any, index: int, part: int) -> tuple[int, bytes | tuple[int, Path]]:
    """Returns the size of an image, and its digest or its file. Images that cannot be read are equal to no other."""
    by_place = -1, _digest(f"{part} {index}".encode())
    if getattr(source, "remote", False):
        return by_place
    try:
        content = source.content(index) if hasattr(source, "content") else source.image(index).tobytes()
        if isinstance(content, Path):
            size = content.stat().st_size
            return size, (size, content)
    except (CorruptImage, FileNotFoundError):
        return by_place
    return len(content), _digest(content)


def _of_file(file: tuple[int, Path], sizes: Counter[int]) -> bytes:
    size, path = file
    if sizes[size] == 1:
        return _digest(f"file {path}".encode("utf-8", "surrogateescape"))
    with path.open("rb") as opened:
        digest = hashlib.blake2b(digest_size=16)
        while content := opened.read(CHUNK):
            digest.update(content)
    return digest.digest()


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
